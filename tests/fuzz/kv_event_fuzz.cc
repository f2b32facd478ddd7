// Batches of events of engines: what decodes, encodes to bytes that decode to the same batch; and a consolidator and the names of an
// engine's blocks take whatever it says.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "cairn/base/check.h"
#include "cairn/events/consolidator.h"
#include "cairn/events/kv_event.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace cairn;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  Result<KvEventBatch> batch = decode_kv_events(bytes);
  if (!batch) {
    return 0;
  }
  EngineNames names;
  Consolidator merged(EventMode::kDedup);
  Consolidator tiers(EventMode::kPassthrough);
  std::vector<KvEvent> out;
  for (const KvEvent& event : batch->events) {
    if (const auto renamed = names.rename(event)) {
      merged.apply(0, *renamed, out);
    }
    merged.apply(1, event, out);
    tiers.apply(1, event, out);
    if (const auto* const stored = std::get_if<KvStored>(&event.data)) {
      std::string json;
      append_router_json({}, event, local_hashes(*stored, salt_of(*stored)), json);
    }
  }
  (void)merged.snapshot();
  (void)tiers.snapshot();
  merged.clear(1, std::nullopt, out);

  // vLLM's form has no salts of SGLang and TensorRT-LLM, and no place for what was left out.
  for (KvEvent& event : batch->events) {
    if (auto* const stored = std::get_if<KvStored>(&event.data)) {
      stored->cache_salt.clear();
    }
  }
  batch->ignored = 0;
  batch->time = 0;  // it may be no number, which equals nothing
  std::string again;
  append_vllm(*batch, again);
  const Result<KvEventBatch> decoded = decode_kv_events(again);
  CAIRN_CHECK(decoded.has_value() && *decoded == *batch, "a batch survives its encoding");
  return 0;
}
