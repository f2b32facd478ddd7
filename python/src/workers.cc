// cairn.Worker: the worker's side of the connector. cairn/_worker.py describes tensors and events to it.
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "cairn/base/str_cat.h"
#include "cairn/connector/worker_connector.h"
#include "python/src/connectors.h"
#include "python/src/duration.h"

namespace cairn::python {

using namespace nb::literals;  // NOLINT(google-build-using-namespace): "name"_a

namespace {

// Python objects that threads of Cairn have let go of. They cannot drop them, since that takes the GIL: a later call does.
class LetGo {
 public:
  void add(PyObject* object) {
    const std::scoped_lock lock(mutex_);
    objects_.push_back(object);
  }
  // Requires: the GIL.
  void drop() {
    std::vector<PyObject*> dropped;
    {
      const std::scoped_lock lock(mutex_);
      dropped.swap(objects_);
    }
    for (PyObject* const object : dropped) {
      Py_DECREF(object);
    }
  }

 private:
  std::mutex mutex_;
  std::vector<PyObject*> objects_;
};

// A tensor as cairn/_worker.py describes it: pointer, bytes, memory kind, device, sizes, strides (elements).
using TensorFacts =
    std::tuple<std::uintptr_t, std::uint64_t, std::string, int, std::vector<std::uint64_t>, std::vector<std::int64_t>>;

MemoryKind kind_of(const std::string& name) {
  for (const MemoryKind kind : {MemoryKind::kSystem, MemoryKind::kPinned, MemoryKind::kDevice}) {
    if (name == to_string(kind)) {
      return kind;
    }
  }
  raise(ErrorCode::kInvalidArgument, str_cat("unknown memory kind '", name, "'; expected system, pinned or device"));
}

TensorAxis axis_of(const std::string& name) {
  for (const TensorAxis axis : {TensorAxis::kBlock, TensorAxis::kLayer, TensorAxis::kKv, TensorAxis::kToken,
                                TensorAxis::kFlatToken, TensorAxis::kHead, TensorAxis::kElement}) {
    if (name == to_string(axis)) {
      return axis;
    }
  }
  raise(ErrorCode::kInvalidArgument,
        str_cat("unknown axis '", name, "'; expected block, layer, kv, token, flat_token, head or element"));
}

KvGroup group_of(nb::handle given) {
  KvGroup group{.name = nb::cast<std::string>(given.attr("name")),
                .layers = nb::cast<std::vector<std::string>>(given.attr("layers")),
                .tensors = {},
                .element_bits = nb::cast<std::uint32_t>(given.attr("element_bits")),
                .page_size = nb::cast<std::uint32_t>(given.attr("page_size"))};
  std::vector<TensorAxis> axes;
  for (const std::string& name : nb::cast<std::vector<std::string>>(given.attr("axes"))) {
    axes.push_back(axis_of(name));
  }
  for (const nb::handle each : given.attr("facts")) {
    const auto [pointer, bytes, kind, device, sizes, strides] = nb::cast<TensorFacts>(each);
    group.tensors.push_back({.base = reinterpret_cast<void*>(pointer),
                             .bytes = bytes,
                             .kind = kind_of(kind),
                             .device = kind == "system" ? kNoDevice : device,
                             .axes = axes,
                             .sizes = sizes,
                             .strides = strides});
  }
  return group;
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

struct Worker final : Closable {
  // Destroyed from the last to the first: the connector before what it uses.
  struct State {
    nb::object tensors;
    ManagerPtr scheduler;  // null if it is in another process
    std::unique_ptr<WorkerConnector> connector;
  };
  Worker(State given, int gpu) : state(std::move(given)), device(gpu) {}
  ~Worker() override { close(); }

  void close() override {
    if (state.is_closed() || !state.is_of_this_process()) {
      return;
    }
    const ExclusiveUse one(is_busy, "worker");
    const std::unique_ptr<State> ended = state.close();
    {
      const GilRelease released;
      ended->connector.reset();
    }
    let_go->drop();
  }
  // Calls without the GIL, one thread at a time.
  template <typename Call>
  auto call(Call make) {
    const ExclusiveUse one(is_busy, "worker");
    State& used = state.get();
    let_go->drop();
    const GilRelease released;
    return make(*used.connector);
  }
  // The engine's CUDA event, kept alive until Cairn has waited for it. `event`: its handle and its object; None if there is
  // nothing to wait for.
  [[nodiscard]] StepEventPtr event_of(const std::optional<std::pair<std::uintptr_t, nb::object>>& event) const {
    if (!event) {
      return nullptr;
    }
    PyObject* const object = event->second.ptr();
    Py_INCREF(object);
    const std::shared_ptr<void> keep(object, [to = let_go](void* kept) { to->add(static_cast<PyObject*>(kept)); });
    return value_or_raise(cuda_step_event(reinterpret_cast<void*>(event->first), device, keep));
  }

  OfProcess<State> state;
  const int device;
  bool is_busy = false;  // guarded by the GIL
  std::shared_ptr<LetGo> let_go = std::make_shared<LetGo>();
};

using EventArgument = std::optional<std::pair<std::uintptr_t, nb::object>>;

void make_worker(Worker* place, const nb::list& given, std::vector<std::string> layers, const Scheduler* scheduler,
                 const std::optional<std::string>& leader, std::uint32_t rank, std::uint32_t ranks,
                 std::uint32_t pipeline, std::optional<std::uint32_t> first_layer, const std::string& secret,
                 nb::dict limits) {
  if ((scheduler == nullptr) == !leader.has_value()) {
    raise(ErrorCode::kInvalidArgument,
          "give either leader, the address of the scheduler, or scheduler, if it is in this process");
  }
  std::vector<KvGroup> groups;
  for (const nb::handle each : given) {
    groups.push_back(group_of(each));
  }
  WorkerConnector::Options options{.rank = rank, .ranks = RankGrid(ranks, pipeline), .first_layer = first_layer};
  ManagerPtr local;
  if (leader) {
    options.address = value_or_raise(RankAddress::parse(*leader));
  } else {
    local = scheduler->use();
    options.leader = &local->connector->local_leader();
  }
  options.secret = secret;
  const auto limit = [&](const char* name, Duration& member) {
    if (limits.contains(name)) {
      member = duration_of(nb::cast<double>(limits[name]));
    }
  };
  limit("fence_limit", options.fence_limit);
  limit("layer_limit", options.layer_limit);
  limit("answer_limit", options.answer_limit);
  limit("first_connection", options.first_connection);
  const int device = device_of(groups);
  Result<std::unique_ptr<WorkerConnector>> made = [&] {
    const GilRelease released;
    return WorkerConnector::make(std::move(groups), std::move(layers), std::move(options));
  }();
  new (place) Worker({given, std::move(local), value_or_raise(std::move(made))}, device);
}

}  // namespace

void bind_worker(nb::module_& module) {
  nb::class_<WorkerOutcomes>(module, "WorkerOutcomes", "Which loads and saves have ended, and which blocks failed.")
      .def_prop_ro(
          "loaded",
          [](const WorkerOutcomes& self) {
            std::vector<std::pair<PythonRequestId, bool>> all;
            for (const WorkerOutcomes::Loaded& each : self.loaded) {
              all.emplace_back(python_id_of(each.request), each.whole);
            }
            return all;
          },
          "Requests whose load has ended, and whether all of its blocks are there.")
      .def_prop_ro(
          "saved",
          [](const WorkerOutcomes& self) {
            std::vector<PythonRequestId> all;
            std::ranges::transform(self.saved, std::back_inserter(all), python_id_of);
            return all;
          },
          "Requests of which a save has ended, saved or not.")
      .def_prop_ro(
          "failed_blocks",
          [](const WorkerOutcomes& self) {
            std::vector<std::uint32_t> all;
            std::ranges::transform(self.failed_blocks, std::back_inserter(all),
                                   [](BlockId block_id) { return index_of(block_id); });
            return all;
          },
          "Device blocks whose content must not be used.")
      .def("__repr__", [](const WorkerOutcomes& self) {
        return str_cat("<cairn.WorkerOutcomes ", self.loaded.size(), " loaded, ", self.saved.size(), " saved, ",
                       self.failed_blocks.size(), " failed blocks>");
      });

  module.def(
      "_describe_dlpack",
      [](const nb::ndarray<>& array) {
        std::vector<std::uint64_t> sizes;
        std::vector<std::int64_t> strides;
        for (std::size_t i = 0; i < array.ndim(); ++i) {
          sizes.push_back(array.shape(i));
          strides.push_back(array.stride(i));
        }
        return nb::make_tuple(reinterpret_cast<std::uintptr_t>(array.data_handle()) + array.byte_offset(),
                              array.device_type(), array.device_id(), sizes, strides, array.dtype().bits);
      },
      "array"_a, nb::sig("def _describe_dlpack(array: typing.Any) -> tuple[int, int, int, list[int], list[int], int]"));

  nb::class_<Worker>(module, "_Worker")
      .def("__init__", &make_worker, "groups"_a, "layers"_a, "scheduler"_a.none(), "leader"_a.none(), "rank"_a,
           "ranks"_a, "pipeline"_a, "first_layer"_a.none(), "secret"_a, "limits"_a,
           nb::sig("def __init__(self, groups: list[typing.Any], layers: collections.abc.Sequence[str], "
                   "scheduler: Scheduler | None, leader: str | None, rank: int, ranks: int, pipeline: int, "
                   "first_layer: int | None, secret: str, limits: dict[str, float]) -> None"))
      .def("close", &Worker::close)
      .def_prop_ro("closed", [](const Worker& self) { return self.state.is_closed(); })
      .def(
          "layer", [](const Worker& self, const std::string& name) { return self.state.get().connector->layer(name); },
          "name"_a)
      .def(
          "bind",
          [](Worker& self, const nb::bytes& metadata) {
            const std::span<const std::byte> given(static_cast<const std::byte*>(metadata.data()), metadata.size());
            check(self.call([&](WorkerConnector& of) { return of.bind(given); }));
          },
          "metadata"_a)
      .def(
          "start_load",
          [](Worker& self, const EventArgument& event) {
            StepEventPtr after = self.event_of(event);
            check(self.call([&](WorkerConnector& of) { return of.start_load(std::move(after)); }));
          },
          "event"_a.none())
      .def(
          "wait_for_layer",
          [](Worker& self, std::uint32_t layer) {
            check(self.call([&](WorkerConnector& of) { return of.wait_for_layer(layer); }));
          },
          "layer"_a)
      .def(
          "save_layer",
          [](Worker& self, std::uint32_t layer, const EventArgument& event) {
            StepEventPtr after = self.event_of(event);
            check(self.call([&](WorkerConnector& of) { return of.save_layer(layer, std::move(after)); }));
          },
          "layer"_a, "event"_a.none())
      .def(
          "save_step",
          [](Worker& self, const EventArgument& event) {
            StepEventPtr after = self.event_of(event);
            check(self.call([&](WorkerConnector& of) { return of.save_step(std::move(after)); }));
          },
          "event"_a.none())
      .def("take_outcomes",
           [](Worker& self) { return self.call([](WorkerConnector& of) { return of.take_outcomes(); }); })
      .def(
          "state",
          [](const Worker& self) {
            const RankState state = self.state.get().connector->state();
            nb::dict all;
            all["is_connected"] = state.is_connected;
            all["generation"] = state.generation;
            all["transfers"] = state.transfers;
            all["done"] = state.done;
            all["failed"] = state.failed;
            all["reason"] = state.reason;
            all["damage"] = state.damage;
            return as_record(all);
          },
          nb::sig("def state(self) -> cairn._record.Record"));
}

}  // namespace cairn::python
