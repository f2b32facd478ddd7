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
      return fail(ErrorCode::kInvalidArgument,
                  str_cat("unknown memory kind ", memory, "; expected one of cairn_memory"));
  }
}

Result<std::vector<std::string>> read_names(const char* const* names, std::size_t count) {
  std::vector<std::string> all;
  for (std::size_t i = 0; i < count; ++i) {
    if (names == nullptr || names[i] == nullptr) {
      return fail(ErrorCode::kInvalidArgument, str_cat("the name of layer ", i, " is NULL"));
    }
    all.emplace_back(names[i]);
  }
  return all;
}

Result<KvTensor> read_tensor(const cairn_tensor& given) {
  CAIRN_TRY_ASSIGN(const MemoryKind kind, memory_of(given.memory));
  if (given.rank != 0 && (given.axes == nullptr || given.sizes == nullptr || given.strides == nullptr)) {
    return fail(ErrorCode::kInvalidArgument, "axes, sizes or strides of a tensor is NULL");
  }
  KvTensor tensor{.base = given.base,
                  .bytes = given.bytes,
                  .kind = kind,
                  .device = kind == MemoryKind::kSystem ? kNoDevice : given.device};
  for (std::uint32_t i = 0; i < given.rank; ++i) {
    if (given.axes[i] > CAIRN_AXIS_ELEMENT) {
      return fail(ErrorCode::kInvalidArgument, str_cat("unknown axis ", given.axes[i], "; expected one of cairn_axis"));
    }
    tensor.axes.push_back(static_cast<TensorAxis>(given.axes[i]));
    tensor.sizes.push_back(given.sizes[i]);
    tensor.strides.push_back(given.strides[i]);
  }
  return tensor;
}

Result<KvGroup> read_group(const cairn_group& given) {
  KvGroup group{.name = read_text(given.name), .layers = {}, .tensors = {}};
  CAIRN_TRY_ASSIGN(group.layers, read_names(given.layers, given.layer_count));
  group.element_bits = given.element_bits;
  group.page_size = given.page_size;
  CAIRN_TRY_ASSIGN(const std::vector<cairn_tensor> tensors, read_structs(given.tensors, given.tensor_count, "tensors"));
  for (const cairn_tensor& each : tensors) {
    CAIRN_TRY_ASSIGN(KvTensor tensor, read_tensor(each));
    group.tensors.push_back(std::move(tensor));
  }
  return group;
}

Result<WorkerConnector::Options> read_options(const cairn_worker_options& given) {
  WorkerConnector::Options options{.rank = given.rank};
  CAIRN_TRY_ASSIGN(options.ranks, read_grid(given.ranks, given.pipeline));
  if (given.first_layer != 0) {
    options.first_layer = given.first_layer;
  }
  if ((given.leader == nullptr) == (given.scheduler == nullptr)) {
    return fail(ErrorCode::kInvalidArgument,
                "give either leader, the address of the scheduler, or scheduler, if it is in this process");
  }
  if (given.leader != nullptr) {
    CAIRN_TRY_ASSIGN(options.address, RankAddress::parse(given.leader));
  } else {
    options.leader = &given.scheduler->connector->local_leader();
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
  return guarded(error, [&]() -> Status {
    CAIRN_TRY_ASSIGN(const cairn_worker_options given, read_struct(options, "options"));
    if (worker == nullptr) {
      return fail(ErrorCode::kInvalidArgument, "worker is NULL");
    }
    CAIRN_TRY_ASSIGN(WorkerConnector::Options read, read_options(given));
    CAIRN_TRY_ASSIGN(std::vector<std::string> layers, read_names(given.layers, given.layer_count));
    CAIRN_TRY_ASSIGN(const std::vector<cairn_group> groups, read_structs(given.groups, given.group_count, "groups"));
    std::vector<KvGroup> tensors;
    for (const cairn_group& each : groups) {
      CAIRN_TRY_ASSIGN(KvGroup group, read_group(each));
      tensors.push_back(std::move(group));
    }
    auto handle = std::make_unique<cairn_worker>();
    handle->device = device_of(tensors);
    CAIRN_TRY_ASSIGN(handle->connector, WorkerConnector::make(std::move(tensors), std::move(layers), std::move(read)));
    *worker = handle.release();
    return {};
  });
}

void cairn_worker_destroy(cairn_worker* worker) { delete worker; }

int32_t cairn_worker_bind(cairn_worker* worker, const uint8_t* metadata, size_t size, cairn_error* error) {
  return guarded(error, [&]() -> Status {
    CAIRN_TRY_ASSIGN(const std::span<const uint8_t> given, read_array(metadata, size, "metadata"));
    return worker->connector->bind(std::as_bytes(given));
  });
}

int32_t cairn_worker_start_load(cairn_worker* worker, void* event, cairn_error* error) {
  return guarded(error, [&]() -> Status {
    CAIRN_TRY_ASSIGN(StepEventPtr after, event_of(worker, event));
    return worker->connector->start_load(std::move(after));
  });
}

int32_t cairn_worker_wait_for_layer(cairn_worker* worker, uint32_t layer, cairn_error* error) {
  return guarded(error, [&]() -> Status { return worker->connector->wait_for_layer(layer); });
}

int32_t cairn_worker_save_layer(cairn_worker* worker, uint32_t layer, void* event, cairn_error* error) {
  return guarded(error, [&]() -> Status {
    CAIRN_TRY_ASSIGN(StepEventPtr after, event_of(worker, event));
    return worker->connector->save_layer(layer, std::move(after));
  });
}

int32_t cairn_worker_save_step(cairn_worker* worker, void* event, cairn_error* error) {
  return guarded(error, [&]() -> Status {
    CAIRN_TRY_ASSIGN(StepEventPtr after, event_of(worker, event));
    return worker->connector->save_step(std::move(after));
  });
}

int32_t cairn_worker_take_outcomes(cairn_worker* worker, cairn_worker_outcomes* outcomes, cairn_error* error) {
  return guarded(error, [&]() -> Status {
    CAIRN_TRY(read_struct(outcomes, "outcomes"));  // before anything is taken
    // Outcomes that were taken and not reported, because memory ran out, are reported now.
    if (!worker->taken) {
      worker->taken = worker->connector->take_outcomes();
    }
    const WorkerOutcomes& taken = *worker->taken;
    worker->requests.clear();
    worker->requests.reserve(taken.loaded.size() + taken.saved.size());  // so that none moves
    worker->loaded.clear();
    for (const WorkerOutcomes::Loaded& one : taken.loaded) {
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
    cairn_worker_outcomes out{};
    out.loaded = worker->loaded.data();
    out.loaded_count = worker->loaded.size();
    out.saved = worker->saved.data();
    out.saved_count = worker->saved.size();
    out.failed_blocks = worker->failed_blocks.data();
    out.failed_block_count = worker->failed_blocks.size();
    out.loaded_stride = sizeof(cairn_worker_loaded);
    CAIRN_TRY(write_struct(outcomes, out, "outcomes"));
    worker->taken.reset();
    return {};
  });
}

int32_t cairn_worker_get_state(const cairn_worker* worker, cairn_worker_state* state) {
  return guarded(nullptr, [&] {
    const RankState now = worker->connector->state();
    cairn_worker_state out{};
    out.is_connected = now.is_connected ? 1 : 0;
    out.generation = now.generation;
    out.transfers = now.transfers;
    out.done = now.done;
    out.failed = now.failed;
    return outcome(write_struct(state, out, "state"), nullptr);
  });
}
