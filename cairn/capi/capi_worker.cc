#include <chrono>
#include <utility>

#include "cairn/base/str_cat.h"
#include "cairn/capi/c_boundary.h"
#include "cairn/capi/c_handles.h"
#include "cairn/transfer/cuda_step_event.h"

namespace cairn::capi {

namespace {

Result<MemoryKind> memory_of(uint32_t memory) {
  switch (memory) {
    case CAIRN_MEMORY_SYSTEM:
      return MemoryKind::kSystem;
    case CAIRN_MEMORY_PINNED:
      return MemoryKind::kPinned;
    case CAIRN_MEMORY_DEVICE:
      return MemoryKind::kDevice;
    default:
      return fail(ErrorCode::kInvalidArgument, str_cat("there is no kind of memory ", memory));
  }
}

Result<std::vector<std::string>> read_names(const char* const* names, std::size_t count) {
  std::vector<std::string> all;
  for (std::size_t i = 0; i < count; ++i) {
    if (names == nullptr || names[i] == nullptr) {
      return fail(ErrorCode::kInvalidArgument, "the name of a layer is NULL");
    }
    all.emplace_back(names[i]);
  }
  return all;
}

Result<KvTensor> read_tensor(const cairn_tensor& given) {
  const Result<MemoryKind> kind = memory_of(given.memory);
  if (!kind) {
    return Unexpected(kind.error());
  }
  if (given.rank != 0 && (given.axes == nullptr || given.sizes == nullptr || given.strides == nullptr)) {
    return fail(ErrorCode::kInvalidArgument, "a tensor without axes, sizes or strides");
  }
  KvTensor tensor{.base = given.base,
                  .bytes = given.bytes,
                  .kind = *kind,
                  .device = *kind == MemoryKind::kSystem ? kNoDevice : given.device};
  for (std::uint32_t i = 0; i < given.rank; ++i) {
    if (given.axes[i] > CAIRN_AXIS_ELEMENT) {
      return fail(ErrorCode::kInvalidArgument, str_cat("there is no axis ", given.axes[i]));
    }
    tensor.axes.push_back(static_cast<TensorAxis>(given.axes[i]));
    tensor.sizes.push_back(given.sizes[i]);
    tensor.strides.push_back(given.strides[i]);
  }
  return tensor;
}

Result<KvGroup> read_group(const cairn_group& given) {
  Result<std::vector<std::string>> layers = read_names(given.layers, given.layer_count);
  Result<std::vector<cairn_tensor>> tensors = read_structs(given.tensors, given.tensor_count, "tensors");
  if (!layers || !tensors) {
    return Unexpected(!layers ? layers.error() : tensors.error());
  }
  KvGroup group{.name = read_text(given.name), .layers = *std::move(layers), .tensors = {}};
  group.element_bits = given.element_bits;
  group.page_size = given.page_size;
  for (const cairn_tensor& each : *tensors) {
    Result<KvTensor> tensor = read_tensor(each);
    if (!tensor) {
      return Unexpected(std::move(tensor).error());
    }
    group.tensors.push_back(*std::move(tensor));
  }
  return group;
}

Result<WorkerConnector::Options> read_options(const cairn_worker_options& given) {
  WorkerConnector::Options options{.rank = given.rank, .ranks = given.ranks == 0 ? 1 : given.ranks};
  if ((given.leader == nullptr) == (given.scheduler == nullptr)) {
    return fail(ErrorCode::kInvalidArgument,
                "give the leader's address, or the scheduler of this process: one of the two");
  }
  if (given.leader != nullptr) {
    Result<RankAddress> address = RankAddress::parse(given.leader);
    if (!address) {
      return Unexpected(std::move(address).error());
    }
    options.leader = *std::move(address);
  } else {
    options.group = &given.scheduler->connector->ranks();
  }
  options.secret = read_text(given.secret);
  set_limit(options.fence_limit, given.fence_limit_ms);
  set_limit(options.layer_limit, given.layer_limit_ms);
  set_limit(options.answer_limit, given.answer_limit_ms);
  set_limit(options.first_connection, given.first_connection_ms);
  return options;
}

Result<StepEventPtr> event_of(const cairn_worker* worker, void* event) {
  return event == nullptr ? Result<StepEventPtr>(nullptr) : cuda_step_event(event, worker->device);
}

// The GPU that the engine records its events on: that of its first tensor there.
int device_of(const std::vector<KvGroup>& groups) {
  for (const KvGroup& group : groups) {
    for (const KvTensor& tensor : group.tensors) {
      if (tensor.kind == MemoryKind::kDevice) {
        return tensor.device;
      }
    }
  }
  return 0;
}

const char* kept_text_of(const RequestId& request, std::vector<std::string>& texts) {
  texts.push_back(text_of(request));
  return texts.back().c_str();
}

}  // namespace

}  // namespace cairn::capi

using namespace cairn;        // NOLINT(google-build-using-namespace): the functions stand outside of it
using namespace cairn::capi;  // NOLINT(google-build-using-namespace)

int32_t cairn_worker_create(const cairn_worker_options* options, cairn_worker** worker, cairn_error* error) {
  return guarded(error, [&]() -> int32_t {
    const Result<cairn_worker_options> given = read_struct(options, "options");
    if (!given || worker == nullptr) {
      return given ? report(error, CAIRN_INVALID_ARGUMENT, "worker is NULL") : report(error, given.error());
    }
    Result<WorkerConnector::Options> read = read_options(*given);
    Result<std::vector<std::string>> layers = read_names(given->layers, given->layer_count);
    Result<std::vector<cairn_group>> groups = read_structs(given->groups, given->group_count, "groups");
    if (!read || !layers || !groups) {
      return report(error, !read ? read.error() : !layers ? layers.error() : groups.error());
    }
    std::vector<KvGroup> tensors;
    for (const cairn_group& each : *groups) {
      Result<KvGroup> group = read_group(each);
      if (!group) {
        return report(error, group.error());
      }
      tensors.push_back(*std::move(group));
    }
    const int device = device_of(tensors);
    Result<std::unique_ptr<WorkerConnector>> made =
        WorkerConnector::make(std::move(tensors), *std::move(layers), *std::move(read));
    if (!made) {
      return report(error, made.error());
    }
    auto handle = std::make_unique<cairn_worker>();
    handle->connector = *std::move(made);
    handle->device = device;
    *worker = handle.release();
    return CAIRN_OK;
  });
}

void cairn_worker_destroy(cairn_worker* worker) { delete worker; }

int32_t cairn_worker_bind(cairn_worker* worker, const uint8_t* metadata, size_t size, cairn_error* error) {
  return guarded(error, [&]() -> int32_t {
    const Result<std::span<const uint8_t>> given = read_array(metadata, size, "metadata");
    return given ? outcome(worker->connector->bind(std::as_bytes(*given)), error) : report(error, given.error());
  });
}

int32_t cairn_worker_start_load(cairn_worker* worker, void* event, cairn_error* error) {
  return guarded(error, [&]() -> int32_t {
    Result<StepEventPtr> after = event_of(worker, event);
    return after ? outcome(worker->connector->start_load(*std::move(after)), error) : report(error, after.error());
  });
}

int32_t cairn_worker_wait_for_layer(cairn_worker* worker, uint32_t layer, cairn_error* error) {
  return guarded(error, [&] { return outcome(worker->connector->wait_for_layer(layer), error); });
}

int32_t cairn_worker_save_layer(cairn_worker* worker, uint32_t layer, void* event, cairn_error* error) {
  return guarded(error, [&]() -> int32_t {
    Result<StepEventPtr> after = event_of(worker, event);
    return after ? outcome(worker->connector->save_layer(layer, *std::move(after)), error)
                 : report(error, after.error());
  });
}

int32_t cairn_worker_save_step(cairn_worker* worker, void* event, cairn_error* error) {
  return guarded(error, [&]() -> int32_t {
    Result<StepEventPtr> after = event_of(worker, event);
    return after ? outcome(worker->connector->save_step(*std::move(after)), error) : report(error, after.error());
  });
}

// The size that callers of version 1 step by, whose cairn_report has no loaded_stride: a struct that grows is copied for
// them member by member.
static_assert(sizeof(cairn_worker_loaded) == 16);

int32_t cairn_worker_take_report(cairn_worker* worker, cairn_report* report_out, cairn_error* error) {
  return guarded(error, [&]() -> int32_t {
    if (const Result<cairn_report> asked = read_struct(report_out, "report"); !asked) {
      return report(error, asked.error());  // before anything is taken
    }
    // What was taken and could not be told, for want of memory, is told now.
    if (!worker->taken) {
      worker->taken = worker->connector->take_report();
    }
    const WorkerReport& taken = *worker->taken;
    worker->requests.clear();
    worker->requests.reserve(taken.loaded.size() + taken.saved.size());  // so that none moves
    worker->loaded.clear();
    for (const WorkerReport::Loaded& one : taken.loaded) {
      worker->loaded.push_back({kept_text_of(one.request, worker->requests), one.whole ? 1U : 0U});
    }
    worker->saved.clear();
    for (const RequestId& request : taken.saved) {
      worker->saved.push_back(kept_text_of(request, worker->requests));
    }
    worker->failed_blocks.clear();
    for (const BlockId block : taken.failed_blocks) {
      worker->failed_blocks.push_back(index_of(block));
    }
    cairn_report out{};
    out.loaded = worker->loaded.data();
    out.loaded_count = worker->loaded.size();
    out.saved = worker->saved.data();
    out.saved_count = worker->saved.size();
    out.failed_blocks = worker->failed_blocks.data();
    out.failed_block_count = worker->failed_blocks.size();
    out.loaded_stride = sizeof(cairn_worker_loaded);
    const Status written = write_struct(report_out, out, "report");
    worker->taken.reset();
    return outcome(written, error);
  });
}

int32_t cairn_worker_get_state(const cairn_worker* worker, cairn_worker_state* state) {
  return guarded(nullptr, [&] {
    const Rank::State now = worker->connector->state();
    cairn_worker_state out{};
    out.is_connected = now.is_connected ? 1 : 0;
    out.generation = now.generation;
    out.copies = now.copies;
    out.done = now.done;
    out.failed = now.failed;
    return outcome(write_struct(state, out, "state"), nullptr);
  });
}
