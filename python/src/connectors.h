// What the bindings of Scheduler and Worker share.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <variant>

#include "cairn/base/ids.h"
#include "cairn/connector/request_id.h"
#include "cairn/wire/rank_address.h"
#include "python/src/managers.h"

namespace cairn::python {

// cairn.Scheduler: the scheduler's side of the connector.
class Scheduler final : public Closable {
 public:
  explicit Scheduler(ManagerPtr owner) : owner_(std::move(owner)) {}
  ~Scheduler() override { manager_.reset(); }

  // Raises if the scheduler is closed, or the parent process's.
  [[nodiscard]] ManagerPtr use() const { return owner_.get(); }
  [[nodiscard]] bool is_closed() const { return owner_.is_closed(); }
  // The connector's manager, as a cairn.Manager that ends with this.
  [[nodiscard]] nb::object manager();
  void close() override;

  // The last metadata: reused, so that most steps allocate only the bytes object.
  std::vector<std::byte> metadata;
  bool is_busy = false;  // guarded by the GIL

 private:
  OfProcess<ManagerPtr> owner_;
  nb::object manager_;
};

// Marks an object that one thread at a time may use, while a call releases the GIL. Raises if it is marked.
class ExclusiveUse {
 public:
  ExclusiveUse(bool& is_busy, const char* what) : is_busy_(is_busy) {
    if (is_busy) {
      raise(ErrorCode::kFailedPrecondition,
            std::string("another thread is in a call of this ") + what + "; use it in one thread at a time");
    }
    is_busy_ = true;
  }
  ExclusiveUse(const ExclusiveUse&) = delete;
  ExclusiveUse& operator=(const ExclusiveUse&) = delete;
  ~ExclusiveUse() { is_busy_ = false; }

 private:
  bool& is_busy_;
};

// An engine names a request by a text or a number.
using PythonRequestId = std::variant<std::uint64_t, std::string>;
[[nodiscard]] inline RequestId id_of(const PythonRequestId& id) {
  return std::visit([](const auto& value) { return RequestId(value); }, id);
}
[[nodiscard]] inline PythonRequestId python_id_of(const RequestId& id) {
  return id.number() != nullptr ? PythonRequestId(*id.number()) : PythonRequestId(*id.text());
}

// Block ids as engines give them: numbers.
[[nodiscard]] inline std::span<const BlockId> as_block_ids(std::span<const std::uint32_t> numbers) {
  static_assert(sizeof(BlockId) == sizeof(std::uint32_t));
  return {reinterpret_cast<const BlockId*>(numbers.data()), numbers.size()};
}

}  // namespace cairn::python
