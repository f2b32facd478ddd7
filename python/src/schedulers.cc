// cairn.Scheduler: the scheduler's side of the connector, and what it takes and returns.
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <array>
#include <climits>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cairn/base/str_cat.h"
#include "cairn/connector/scheduler_connector.h"
#include "python/src/connectors.h"
#include "python/src/duration.h"
#include "python/src/ending.h"
#include "python/src/keys.h"

namespace cairn::python {

using namespace nb::literals;  // NOLINT(google-build-using-namespace): "name"_a

nb::object Scheduler::manager() {
  const ManagerPtr owner = use();
  if (!manager_.is_valid()) {
    manager_ = nb::inst_alloc(nb::type<Manager>());
    new (nb::inst_ptr<Manager>(manager_)) Manager(owner);
    nb::inst_mark_ready(manager_);
  }
  return manager_;
}

void Scheduler::close() {
  const ExclusiveUse one(is_busy, "scheduler");
  owner_.close().reset();
  if (manager_.is_valid()) {
    nb::cast<Manager&>(manager_).close();
  }
}

namespace {

// --- arguments ---

// The engine's digests of full blocks, one after the other: bytes of one length, or 64-bit numbers.
struct Digests {
  std::vector<std::byte> bytes;
  std::size_t size = 0;

  explicit Digests(nb::handle given) {
    if (given.is_none()) {
      return;
    }
    for (const nb::handle each : nb::borrow<nb::sequence>(given)) {
      if (PyLong_Check(each.ptr())) {
        const auto number = nb::cast<std::uint64_t>(each);
        append(&number, sizeof(number));
      } else {
        const nb::bytes digest = nb::cast<nb::bytes>(each);
        append(digest.c_str(), digest.size());
      }
    }
  }
  [[nodiscard]] SchedulerConnector::BlockDigests get() const { return {.bytes = bytes, .size = size}; }

 private:
  void append(const void* digest, std::size_t length) {
    if (size != 0 && length != size) {
      raise(ErrorCode::kInvalidArgument,
            str_cat("block digests of ", size, " and of ", length, " bytes; all have one length"));
    }
    size = length;
    const auto* const first = static_cast<const std::byte*>(digest);
    bytes.insert(bytes.end(), first, first + length);
  }
};

// Token or block ids of a request. Most requests have one or none in an iteration: those need no memory of their own.
class Numbers {
 public:
  Numbers() = default;
  // A sequence of numbers, or an array. A few in a tuple or list are read without making an array of them.
  explicit Numbers(nb::handle given) {
    if (!read_few(given.ptr())) {
      TokensArgument argument(given);
      const std::span<const Token> all = argument.get();
      many_ = std::make_unique<std::vector<std::uint32_t>>(all.begin(), all.end());
    }
  }

  [[nodiscard]] std::span<const std::uint32_t> get() const {
    return many_ != nullptr ? std::span<const std::uint32_t>(*many_) : std::span(few_).first(few_size_);
  }

  // Reads a few numbers of a tuple or list. Returns false, without an exception, if it is not one of them, has more, or something
  // else in it.
  [[nodiscard]] bool read_few(PyObject* given) {
    const bool is_tuple = PyTuple_Check(given);
    if (!is_tuple && !PyList_Check(given)) {
      return false;
    }
    const auto size = static_cast<std::size_t>(is_tuple ? PyTuple_Size(given) : PyList_Size(given));
    if (size > few_.size()) {
      return false;
    }
    for (std::size_t i = 0; i < size; ++i) {
      const auto at = static_cast<Py_ssize_t>(i);
      PyObject* const each = is_tuple ? PyTuple_GetItem(given, at) : PyList_GetItem(given, at);
      const unsigned long number = PyLong_Check(each) ? PyLong_AsUnsignedLong(each) : ULONG_MAX;
      if (number > std::numeric_limits<std::uint32_t>::max()) {
        PyErr_Clear();
        return false;
      }
      few_[i] = static_cast<std::uint32_t>(number);
    }
    few_size_ = size;
    return true;
  }

 private:
  std::array<std::uint32_t, 8> few_ = {};
  std::size_t few_size_ = 0;
  std::unique_ptr<std::vector<std::uint32_t>> many_;  // instead of the few
};

// cairn.Scheduled: one request of an iteration. An engine makes one for each request that decodes, in every iteration.
struct ScheduledRequest {
  std::uint64_t request = 0;
  std::size_t computed_tokens = 0;
  Numbers new_tokens;
  Numbers new_blocks;
  std::size_t accepted_draft_tokens = 0;
  std::size_t scheduled_tokens = 0;
  // What few requests have.
  struct Rare {
    Numbers draft_tokens;
    std::vector<MmRun> new_runs;
    Digests digests{nb::none()};
  };
  std::unique_ptr<Rare> rare;

  [[nodiscard]] Rare& make_rare() {
    if (rare == nullptr) {
      rare = std::make_unique<Rare>();
    }
    return *rare;
  }
  [[nodiscard]] SchedulerConnector::Scheduled get() const {
    SchedulerConnector::Scheduled all{.request = RequestHandle{request},
                                      .computed_tokens = computed_tokens,
                                      .new_tokens = new_tokens.get(),
                                      .new_blocks = as_block_ids(new_blocks.get()),
                                      .accepted_draft_tokens = accepted_draft_tokens,
                                      .scheduled_tokens = scheduled_tokens};
    if (rare != nullptr) {
      all.draft_tokens = rare->draft_tokens.get();
      all.new_runs = rare->new_runs;
      all.new_block_digests = rare->digests.get();
    }
    return all;
  }
};

bool read_number(PyObject* given, std::uint64_t& number) {
  number = PyLong_Check(given) ? PyLong_AsUnsignedLongLong(given) : ULLONG_MAX;
  if (number == ULLONG_MAX) {
    PyErr_Clear();
    return false;
  }
  return true;
}

// Reads the arguments of cairn.Scheduled() if they are numbers and small tuples or lists, and named by constants of the program:
// 256 times in every iteration of an engine, in half of the time that __init__ takes. False, without an exception, for anything
// else.
bool read_plain(PyObject* const* arguments, std::size_t count, PyObject* keywords, ScheduledRequest& made) {
  constexpr std::size_t kPositional = 4;
  static const std::array<PyObject*, 7> names = {
      PyUnicode_InternFromString("request"),         PyUnicode_InternFromString("computed_tokens"),
      PyUnicode_InternFromString("new_tokens"),      PyUnicode_InternFromString("new_blocks"),
      PyUnicode_InternFromString("draft_tokens"),    PyUnicode_InternFromString("accepted_draft_tokens"),
      PyUnicode_InternFromString("scheduled_tokens")};
  if (count > kPositional) {
    return false;
  }
  std::array<PyObject*, names.size()> values = {};
  std::copy_n(arguments, count, values.begin());
  const Py_ssize_t keyword_count = keywords != nullptr ? PyTuple_Size(keywords) : 0;
  for (Py_ssize_t i = 0; i < keyword_count; ++i) {
    const auto* const name = std::ranges::find(names, PyTuple_GetItem(keywords, i));
    if (name == names.end() || values[static_cast<std::size_t>(name - names.begin())] != nullptr) {
      return false;
    }
    values[static_cast<std::size_t>(name - names.begin())] = arguments[count + static_cast<std::size_t>(i)];
  }
  const auto [request, computed, tokens, blocks, drafts, accepted, scheduled] = values;
  if (request == nullptr || computed == nullptr || !read_number(request, made.request) ||
      !read_number(computed, made.computed_tokens) || (tokens != nullptr && !made.new_tokens.read_few(tokens)) ||
      (blocks != nullptr && !made.new_blocks.read_few(blocks)) ||
      (accepted != nullptr && !read_number(accepted, made.accepted_draft_tokens)) ||
      (scheduled != nullptr && !read_number(scheduled, made.scheduled_tokens))) {
    return false;
  }
  return drafts == nullptr || made.make_rare().draft_tokens.read_few(drafts);
}

// The call of the class cairn.Scheduled, without or with __init__. Subclasses are called by Python's own rules.
PyObject* call_scheduled(PyObject* type, PyObject* const* arguments, std::size_t flags, PyObject* keywords) noexcept {
  constexpr std::size_t kOffsetFlag = std::size_t{1}
                                      << (8 * sizeof(std::size_t) - 1);  // PY_VECTORCALL_ARGUMENTS_OFFSET
  const std::size_t count = flags & ~kOffsetFlag;
  try {
    nb::object object = nb::inst_alloc(type);
    if (ScheduledRequest made; read_plain(arguments, count, keywords, made)) {
      new (nb::inst_ptr<ScheduledRequest>(object)) ScheduledRequest(std::move(made));
      nb::inst_mark_ready(object);
      return object.release().ptr();
    }
    nb::list positional;
    for (std::size_t i = 0; i < count; ++i) {
      positional.append(nb::handle(arguments[i]));
    }
    nb::dict named;
    if (keywords != nullptr) {
      const PyObject* const* value = arguments + count;
      for (const nb::handle name : nb::borrow<nb::tuple>(keywords)) {
        named[name] = nb::handle(*value++);
      }
    }
    object.attr("__init__")(*positional, **named);
    return object.release().ptr();
  } catch (nb::python_error& error) {
    error.restore();
    return nullptr;
  }
}

template <typename T>
using Column = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <typename T>
std::span<const T> span_of(const std::optional<Column<T>>& column) {
  return column ? std::span<const T>(column->data(), column->size()) : std::span<const T>();
}

// Values of all requests one after the other; those of request i are offsets[i] to offsets[i + 1].
class Ragged {
 public:
  Ragged(const char* name, std::size_t requests, std::span<const std::uint32_t> values,
         std::span<const std::uint32_t> offsets)
      : values_(values), offsets_(offsets) {
    if (values.empty() && offsets.empty()) {
      return;
    }
    if (offsets.size() != requests + 1 || offsets.front() != 0 || offsets.back() != values.size() ||
        !std::ranges::is_sorted(offsets)) {
      raise(ErrorCode::kInvalidArgument,
            str_cat("the offsets of ", name, " have ", offsets.size(), " elements for ", requests, " requests and ",
                    values.size(), " values; expected one more than requests, from 0 up to the number of values"));
    }
  }
  [[nodiscard]] std::span<const std::uint32_t> operator[](std::size_t i) const {
    return offsets_.empty() ? std::span<const std::uint32_t>()
                            : values_.subspan(offsets_[i], offsets_[i + 1] - offsets_[i]);
  }

 private:
  std::span<const std::uint32_t> values_;
  std::span<const std::uint32_t> offsets_;
};

// A column that has one value for each request, or is missing.
std::size_t value_at(const char* name, std::span<const std::uint64_t> column, std::size_t requests, std::size_t i) {
  if (column.empty()) {
    return 0;
  }
  if (column.size() != requests) {
    raise(ErrorCode::kInvalidArgument,
          str_cat(name, " has ", column.size(), " elements for ", requests, " requests; expected one for each"));
  }
  return column[i];
}

nb::bytes build(Scheduler& self, SchedulerConnector::Iteration iteration, std::optional<double> duration) {
  iteration.duration = duration_of(duration);
  const ExclusiveUse one(self.is_busy, "scheduler");
  const ManagerPtr owner = self.use();
  Status status;
  {
    const GilRelease released;
    status = owner->connector->build(iteration, self.metadata);
  }
  check(status);
  return nb::bytes(self.metadata.data(), self.metadata.size());
}

std::span<const RequestHandle> as_handles(std::span<const std::uint64_t> numbers) {
  static_assert(sizeof(RequestHandle) == sizeof(std::uint64_t));
  return {reinterpret_cast<const RequestHandle*>(numbers.data()), numbers.size()};
}

// --- the calls ---

void make_scheduler(Scheduler* place, const nb::object& config, std::uint32_t device_blocks, std::uint32_t ranks,
                    std::uint32_t pipeline, const std::optional<std::string>& address, const std::string& secret,
                    const std::string& load_mode, nb::dict options, bool environment, const nb::kwargs& keys) {
  SchedulerConnector::Options read;
  ConfigArguments arguments{.environment = environment, .keys = keys};
  if (nb::isinstance<nb::str>(config)) {
    arguments.toml = nb::cast<std::string>(config);
  } else if (nb::hasattr(config, "__fspath__")) {
    arguments.file = nb::cast<std::string>(config.attr("__fspath__")());
  } else {
    arguments.values = config;
  }
  read.manager = config_of(arguments);
  if (!read.manager.model.groups.empty()) {
    raise(
        ErrorCode::kInvalidArgument,
        "model.groups is given, but cairn.Scheduler has one block table; use the connector of C++ or C, or remove it");
  }
  if (device_blocks != 0) {
    read.manager.device.blocks = device_blocks;
  }
  read.ranks.ranks = RankGrid(ranks, pipeline);
  if (address) {
    read.ranks.address = value_or_raise(RankAddress::parse(*address));
  }
  read.ranks.secret = secret;
  if (load_mode != "async" && load_mode != "in_step") {
    raise(ErrorCode::kInvalidArgument, str_cat("unknown load mode '", load_mode, "'; expected async or in_step"));
  }
  read.load = load_mode == "in_step" ? LoadMode::kInStep : LoadMode::kAsync;
  const auto number = [&](const char* name, std::uint32_t& member) {
    if (options.contains(name)) {
      member = nb::cast<std::uint32_t>(options[name]);
    }
  };
  number("loading_blocks", read.loading_blocks);
  number("least_blocks", read.least_blocks);
  number("ask_again", read.ask_again);
  number("in_step_save_blocks", read.in_step_save_blocks);
  const auto time = [&](const char* name, Duration& member) {
    if (options.contains(name)) {
      member = duration_of(nb::cast<double>(options[name]));
    }
  };
  time("load_deadline", read.load_deadline);
  time("save_deadline", read.save_deadline);
  Result<std::unique_ptr<SchedulerConnector>> made = [&] {
    const GilRelease released;
    return SchedulerConnector::make(std::move(read));
  }();
  std::unique_ptr<SchedulerConnector> connector = value_or_raise(std::move(made));
  KvBlockManager manager = connector->manager();
  new (place) Scheduler(own(std::move(connector), std::move(manager)));
}

// Calls on the scheduler's thread, with the GIL: the connector has no locks that a call waits for.
template <typename Call>
auto with_connector(Scheduler& self, Call call) {
  const ExclusiveUse one(self.is_busy, "scheduler");
  const ManagerPtr owner = self.use();
  return call(*owner->connector);
}

// Calls that any thread may make, without the GIL.
template <typename Call>
auto without_gil(const Scheduler& self, Call call) {
  const ManagerPtr owner = self.use();
  const GilRelease released;
  return call(*owner->connector);
}

const char* name_of(SchedulerConnector::Match::When when) {
  constexpr const char* kNames[] = {"now", "later", "ask_again"};
  return kNames[static_cast<std::size_t>(when)];
}

nb::dict dict_of(const SchedulerConnector::SaveStatus& saves) {
  nb::dict all;
  all["asked"] = saves.asked;
  all["saved"] = saves.saved;
  all["shed"] = saves.shed;
  all["paused"] = saves.paused;
  all["lost"] = saves.lost;
  all["too_short"] = saves.too_short;
  all["too_few_uses"] = saves.too_few_uses;
  all["would_not_last"] = saves.would_not_last;
  all["over_budget"] = saves.over_budget;
  all["low_priority"] = saves.low_priority;
  all["filtered"] = saves.filtered;
  all["no_parent"] = saves.no_parent;
  all["in_step"] = saves.in_step;
  all["withdrawn"] = saves.withdrawn;
  return all;
}

void bind_values(nb::module_& module) {
  const auto list_of = [](std::span<const std::uint32_t> numbers) {
    return std::vector<std::uint32_t>(numbers.begin(), numbers.end());
  };
  const auto setter = [](const char* name) {
    return nb::for_setter(nb::sig(kept(str_cat(
        "def ", name, "(self, value: collections.abc.Sequence[int] | numpy.typing.NDArray[typing.Any], /) -> None"))));
  };
  static const PyType_Slot slots[] = {
      {82, reinterpret_cast<void*>(&call_scheduled)},  // Py_tp_vectorcall, of Python 3.14
      {0, nullptr}};
  // Pooled: the objects of an iteration are used again in the next one.
  nb::class_<ScheduledRequest>(module, "Scheduled", nb::pooled(1024), nb::type_slots(slots),
                               R"(One request of an iteration, for Scheduler.build().

`computed_tokens`: tokens whose KV is on the device when the iteration begins. `new_tokens`, `new_blocks`: since the request
was last scheduled. `scheduled_tokens`: that this iteration computes; 0 for all that the request has.)")
      .def(
          "__init__",
          [](ScheduledRequest* place, std::uint64_t request, std::size_t computed_tokens, nb::handle new_tokens,
             nb::handle new_blocks, nb::handle draft_tokens, std::size_t accepted_draft_tokens, nb::handle new_runs,
             std::size_t scheduled_tokens, nb::handle new_block_digests) {
            ScheduledRequest made{.request = request,
                                  .computed_tokens = computed_tokens,
                                  .new_tokens = Numbers(new_tokens),
                                  .new_blocks = Numbers(new_blocks),
                                  .accepted_draft_tokens = accepted_draft_tokens,
                                  .scheduled_tokens = scheduled_tokens,
                                  .rare = nullptr};
            if (Numbers drafts(draft_tokens); !drafts.get().empty()) {
              made.make_rare().draft_tokens = std::move(drafts);
            }
            if (!new_runs.is_none()) {
              made.make_rare().new_runs = nb::cast<std::vector<MmRun>>(new_runs);
            }
            if (!new_block_digests.is_none()) {
              made.make_rare().digests = Digests(new_block_digests);
            }
            new (place) ScheduledRequest(std::move(made));
          },
          "request"_a, "computed_tokens"_a, "new_tokens"_a = nb::tuple(), "new_blocks"_a = nb::tuple(), nb::kw_only(),
          "draft_tokens"_a = nb::tuple(), "accepted_draft_tokens"_a = 0, "new_runs"_a = nb::none(),
          "scheduled_tokens"_a = 0, "new_block_digests"_a = nb::none(),
          nb::sig(
              "def __init__(self, request: int, computed_tokens: int, "
              "new_tokens: collections.abc.Sequence[int] | numpy.typing.NDArray[typing.Any] = (), "
              "new_blocks: collections.abc.Sequence[int] | numpy.typing.NDArray[typing.Any] = (), *, "
              "draft_tokens: collections.abc.Sequence[int] | numpy.typing.NDArray[typing.Any] = (), "
              "accepted_draft_tokens: int = 0, new_runs: collections.abc.Sequence[MmRun] | None = None, "
              "scheduled_tokens: int = 0, new_block_digests: collections.abc.Sequence[bytes | int] | None = None) -> "
              "None"))
      .def_rw("request", &ScheduledRequest::request)
      .def_rw("computed_tokens", &ScheduledRequest::computed_tokens)
      .def_prop_rw(
          "new_tokens", [list_of](const ScheduledRequest& self) { return list_of(self.new_tokens.get()); },
          [](ScheduledRequest& self, nb::handle value) { self.new_tokens = Numbers(value); }, setter("new_tokens"))
      .def_prop_rw(
          "new_blocks", [list_of](const ScheduledRequest& self) { return list_of(self.new_blocks.get()); },
          [](ScheduledRequest& self, nb::handle value) { self.new_blocks = Numbers(value); }, setter("new_blocks"))
      .def_prop_rw(
          "draft_tokens",
          [list_of](const ScheduledRequest& self) {
            return self.rare != nullptr ? list_of(self.rare->draft_tokens.get()) : std::vector<std::uint32_t>();
          },
          [](ScheduledRequest& self, nb::handle value) { self.make_rare().draft_tokens = Numbers(value); },
          setter("draft_tokens"))
      .def_rw("accepted_draft_tokens", &ScheduledRequest::accepted_draft_tokens)
      .def_rw("scheduled_tokens", &ScheduledRequest::scheduled_tokens)
      .def("__repr__", [](const ScheduledRequest& self) {
        return str_cat("Scheduled(request=", self.request, ", computed_tokens=", self.computed_tokens, ", ",
                       self.new_tokens.get().size(), " new tokens, ", self.new_blocks.get().size(), " new blocks)");
      });

  using Match = SchedulerConnector::Match;
  nb::class_<Match>(module, "Match", "What the tiers have of a request.")
      .def_ro("tokens", &Match::tokens, "That can be loaded, beyond those that the engine has.")
      .def_ro("disk_tokens", &Match::disk_tokens, "Of those, on disk; the others are in host memory.")
      .def_prop_ro(
          "when", [](const Match& self) { return name_of(self.when); },
          "`now`; `later`: the request has to wait for its load; `ask_again`: ask in the next iteration.")
      .def("__repr__", [](const Match& self) {
        return str_cat("Match(tokens=", self.tokens, ", when='", name_of(self.when), "')");
      });

  using Outcomes = SchedulerConnector::Outcomes;
  nb::class_<Outcomes::Loaded>(module, "LoadedRequest", "The load of a request has ended.")
      .def_prop_ro("request", [](const Outcomes::Loaded& self) { return static_cast<std::uint64_t>(self.request); })
      .def_ro("tokens", &Outcomes::Loaded::tokens, "Whose KV is on the device now, from the first on.")
      .def_ro("missing", &Outcomes::Loaded::missing, "Tokens that were to be loaded and have to be computed.")
      .def("__repr__", [](const Outcomes::Loaded& self) {
        return str_cat("LoadedRequest(request=", static_cast<std::uint64_t>(self.request), ", tokens=", self.tokens,
                       ", missing=", self.missing, ")");
      });
  nb::class_<Outcomes>(module, "SchedulerOutcomes", "What happened since the last call of take_outcomes().")
      .def_prop_ro(
          "loaded", [](const Outcomes& self) { return self.loaded; }, "Requests that can be scheduled now.")
      .def_prop_ro(
          "released",
          [](const Outcomes& self) {
            std::vector<PythonRequestId> ids;
            std::ranges::transform(self.released, std::back_inserter(ids), python_id_of);
            return ids;
          },
          "Ids of finished requests whose blocks nothing touches any more.")
      .def_prop_ro(
          "ended",
          [](const Outcomes& self) {
            nb::dict all;
            for (const Outcomes::Ended& each : self.ended) {
              all[nb::int_(static_cast<std::uint64_t>(each.request))] = as_record(cairn::python::dict_of(each.counts));
            }
            return all;
          },
          nb::sig("def ended(self) -> dict[int, cairn._record.Record]"),
          "The counts of tokens of each request that is gone.")
      .def("__repr__", [](const Outcomes& self) {
        return str_cat("<cairn.SchedulerOutcomes ", self.loaded.size(), " loaded, ", self.released.size(),
                       " released, ", self.ended.size(), " ended>");
      });
}

}  // namespace

void bind_scheduler(nb::module_& module) {
  bind_values(module);
  nb::class_<Scheduler> scheduler(
      module, "Scheduler",
      R"(The scheduler's side of the connector: what requests load instead of computing, and what is saved.

The configuration is that of a Manager, of the whole engine: a dict, a TOML text, or a path. `device_blocks` is the number of
blocks that the engine has. One thread at a time.

For each request and iteration: add(), take_outcomes(), match(), allocated(), build(), finish(); docs/connector.md.)");
  scheduler.def("__init__", &make_scheduler, "config"_a = nb::none(), nb::kw_only(), "device_blocks"_a = 0,
                "ranks"_a = 1, "pipeline"_a = 1, "address"_a = nb::none(), "secret"_a = "", "load_mode"_a = "async",
                "options"_a = nb::dict(), "environment"_a = false, "keys"_a,
                nb::sig("def __init__(self, config: dict[str, typing.Any] | str | os.PathLike[str] | None = None, *, "
                        "device_blocks: int = 0, ranks: int = 1, pipeline: int = 1, address: str | None = None, "
                        "secret: str = '', load_mode: typing.Literal['async', 'in_step'] = 'async', "
                        "options: dict[str, float] = {}, environment: bool = False, **keys: typing.Any) -> None"),
                "`options`: loading_blocks, least_blocks, ask_again, in_step_save_blocks, load_deadline, save_deadline "
                "(seconds). Other keywords are keys of the configuration.");
  scheduler.def("close", &Scheduler::close, "Stops the connector and its manager. Close the workers first.");
  scheduler.def_prop_ro("closed", &Scheduler::is_closed);
  scheduler.def(
      "__enter__", [](nb::handle self) { return nb::borrow(self); }, nb::sig("def __enter__(self) -> Scheduler"));
  scheduler.def(
      "__exit__", [](Scheduler& self, const nb::args&) { self.close(); },
      nb::sig("def __exit__(self, *args: object) -> None"));
  scheduler.def("__repr__", [](const Scheduler& self) {
    return std::string(self.is_closed() ? "<cairn.Scheduler closed>" : "<cairn.Scheduler>");
  });

  // --- requests ---
  scheduler.def(
      "add",
      [](Scheduler& self, const PythonRequestId& id, TokensArgument tokens, const std::string& salt,
         const std::string& lora_name, const std::vector<MmRun>& mm_runs, std::optional<std::uint32_t> priority,
         std::optional<double> priority_duration, std::optional<double> time_to_live, const std::string& tenant,
         std::string_view hint, double hint_after, std::optional<std::uint32_t> dp_rank, nb::handle block_digests) {
        const Digests digests(block_digests);
        SchedulerConnector::NewRequest request{.tokens = tokens.get(),
                                               .salt = {.salt = salt, .lora_name = lora_name},
                                               .mm_runs = mm_runs,
                                               .priority = priority,
                                               .tenant = tenant,
                                               .hint = hint_of(hint, hint_after),
                                               .dp_rank = dp_rank,
                                               .block_digests = digests.get()};
        request.priority_duration = duration_of(priority_duration);
        request.time_to_live = duration_of(time_to_live);
        const ExclusiveUse one(self.is_busy, "scheduler");
        const ManagerPtr owner = self.use();
        Result<RequestHandle> added = [&] {
          const ReleaseGilIf released(request.tokens.size() >= kManyTokens);
          return owner->connector->add(id_of(id), request);
        }();
        return static_cast<std::uint64_t>(value_or_raise(std::move(added)));
      },
      "id"_a, "tokens"_a, nb::kw_only(), "salt"_a = "", "lora_name"_a = "", "mm_runs"_a = std::vector<MmRun>(),
      "priority"_a = nb::none(), "priority_duration"_a = nb::none(), "time_to_live"_a = nb::none(), "tenant"_a = "",
      "hint"_a = "none", "hint_after"_a = 0.0, "dp_rank"_a = nb::none(), "block_digests"_a = nb::none(),
      "A new request with its prompt. Returns the handle that names it in other calls. Times are seconds.");
  scheduler.def(
      "find",
      [](Scheduler& self, const PythonRequestId& id) -> std::optional<std::uint64_t> {
        const std::optional<RequestHandle> found =
            with_connector(self, [&](const SchedulerConnector& of) { return of.find(id_of(id)); });
        return found ? std::optional(static_cast<std::uint64_t>(*found)) : std::nullopt;
      },
      "id"_a, "The handle of a request; None if there is none of this id.");
  scheduler.def(
      "state",
      [](Scheduler& self, std::uint64_t request) {
        return value_or_raise(
                   with_connector(self, [&](const SchedulerConnector& of) { return of.state(RequestHandle{request}); }))
            .to_string();
      },
      "request"_a, "`Initialized`, `Onboarding(7)`, `Prefilling` and so on; docs/connector.md.");
  scheduler.def(
      "match",
      [](Scheduler& self, std::uint64_t request, std::size_t local_tokens) {
        const ExclusiveUse one(self.is_busy, "scheduler");
        const ManagerPtr owner = self.use();
        Result<SchedulerConnector::Match> match = [&] {
          const GilRelease released;
          return owner->connector->match(RequestHandle{request}, local_tokens);
        }();
        return value_or_raise(std::move(match));
      },
      "request"_a, "local_tokens"_a = 0, "How many tokens the tiers have beyond the engine's first `local_tokens`.");
  scheduler.def(
      "allocated",
      [](Scheduler& self, std::uint64_t request, TokensArgument blocks, std::size_t local_tokens,
         std::size_t loaded_tokens) {
        const std::span<const BlockId> given = as_block_ids(blocks.get());
        check(with_connector(self, [&](SchedulerConnector& of) {
          return of.allocated(RequestHandle{request}, given, local_tokens, loaded_tokens);
        }));
      },
      "request"_a, "blocks"_a, nb::kw_only(), "local_tokens"_a = 0, "loaded_tokens"_a = 0,
      "The engine gave the request these blocks. `local_tokens` are in them; `loaded_tokens`, 0 or what match() said "
      "or "
      "fewer whole blocks, are to be loaded.");

  // --- an iteration ---
  scheduler.def(
      "build",
      [](Scheduler& self, std::uint64_t number, const std::vector<const ScheduledRequest*>& scheduled,
         const std::vector<std::uint64_t>& preempted, std::optional<double> duration,
         std::optional<std::uint64_t> duration_of) {
        std::vector<SchedulerConnector::Scheduled> all(scheduled.size());
        std::ranges::transform(scheduled, all.begin(), [](const ScheduledRequest* each) { return each->get(); });
        return build(
            self, {.number = number, .preempted = as_handles(preempted), .scheduled = all, .duration_of = duration_of},
            duration);
      },
      "number"_a, "scheduled"_a = nb::list(), "preempted"_a = nb::list(), nb::kw_only(), "duration"_a = nb::none(),
      "duration_of"_a = nb::none(),
      nb::sig("def build(self, number: int, scheduled: collections.abc.Sequence[Scheduled] = (), preempted: "
              "collections.abc.Sequence[int] = (), *, "
              "duration: float | None = None, duration_of: int | None = None) -> bytes"),
      "The metadata of an iteration, for every worker. `duration`: seconds that the engine took for an earlier "
      "iteration.");
  scheduler.def(
      "build_columns",
      [](Scheduler& self, std::uint64_t number, const Column<std::uint64_t>& requests,
         const Column<std::uint64_t>& computed_tokens, const std::optional<Column<std::uint32_t>>& new_tokens,
         const std::optional<Column<std::uint32_t>>& token_offsets,
         const std::optional<Column<std::uint32_t>>& new_blocks,
         const std::optional<Column<std::uint32_t>>& block_offsets,
         const std::optional<Column<std::uint64_t>>& scheduled_tokens,
         const std::optional<Column<std::uint32_t>>& draft_tokens,
         const std::optional<Column<std::uint32_t>>& draft_offsets,
         const std::optional<Column<std::uint64_t>>& accepted_draft_tokens,
         const std::optional<Column<std::uint64_t>>& preempted, std::optional<double> duration,
         std::optional<std::uint64_t> duration_of) {
        const std::size_t count = requests.size();
        if (computed_tokens.size() != count) {
          raise(ErrorCode::kInvalidArgument, str_cat("computed_tokens has ", computed_tokens.size(), " elements for ",
                                                     count, " requests; expected one for each"));
        }
        const Ragged tokens("new_tokens", count, span_of(new_tokens), span_of(token_offsets));
        const Ragged blocks("new_blocks", count, span_of(new_blocks), span_of(block_offsets));
        const Ragged drafts("draft_tokens", count, span_of(draft_tokens), span_of(draft_offsets));
        const std::span<const std::uint64_t> scheduled = span_of(scheduled_tokens);
        const std::span<const std::uint64_t> accepted = span_of(accepted_draft_tokens);
        std::vector<SchedulerConnector::Scheduled> all(count);
        for (std::size_t i = 0; i < count; ++i) {
          all[i].request = RequestHandle{requests.data()[i]};
          all[i].computed_tokens = computed_tokens.data()[i];
          all[i].new_tokens = tokens[i];
          all[i].new_blocks = as_block_ids(blocks[i]);
          all[i].draft_tokens = drafts[i];
          all[i].scheduled_tokens = value_at("scheduled_tokens", scheduled, count, i);
          all[i].accepted_draft_tokens = value_at("accepted_draft_tokens", accepted, count, i);
        }
        return build(self,
                     {.number = number,
                      .preempted = as_handles(span_of(preempted)),
                      .scheduled = all,
                      .duration_of = duration_of},
                     duration);
      },
      "number"_a, "requests"_a, "computed_tokens"_a, nb::kw_only(), "new_tokens"_a = nb::none(),
      "token_offsets"_a = nb::none(), "new_blocks"_a = nb::none(), "block_offsets"_a = nb::none(),
      "scheduled_tokens"_a = nb::none(), "draft_tokens"_a = nb::none(), "draft_offsets"_a = nb::none(),
      "accepted_draft_tokens"_a = nb::none(), "preempted"_a = nb::none(), "duration"_a = nb::none(),
      "duration_of"_a = nb::none(),
      "build() for large batches, from arrays: handles and computed tokens are uint64, one for each request. Tokens "
      "and blocks "
      "of all requests follow one another (uint32); those of request i are offsets[i] to offsets[i + 1].");
  scheduler.def_prop_ro(
      "refused",
      [](Scheduler& self) {
        return with_connector(self, [](const SchedulerConnector& of) {
          std::vector<std::pair<std::uint64_t, std::string>> all;
          for (const SchedulerConnector::Refused& each : of.refused()) {
            all.emplace_back(static_cast<std::uint64_t>(each.request), each.error.message);
          }
          return all;
        });
      },
      "Requests with invalid input in the last build(), and why: they continue without a cache.");
  scheduler.def(
      "finish",
      [](Scheduler& self, std::uint64_t request, std::optional<std::size_t> computed_tokens, std::string_view ending) {
        const RequestEnding given = ending_of(ending);
        return value_or_raise(with_connector(
            self, [&](SchedulerConnector& of) { return of.finish(RequestHandle{request}, computed_tokens, given); }));
      },
      "request"_a, "computed_tokens"_a = nb::none(), "ending"_a = "unknown",
      "The request ended: `ending` is `tool_call`, `end_of_turn`, `length`, `abort` or `unknown`, or an engine's word "
      "for "
      "it, such as `tool_calls` or `stop`. True: its device blocks must not change until take_outcomes() names it as "
      "released.");
  scheduler.def(
      "take_outcomes",
      [](Scheduler& self) { return with_connector(self, [](SchedulerConnector& of) { return of.take_outcomes(); }); },
      "What happened since the last call.");
  scheduler.def(
      "has_work",
      [](Scheduler& self) { return with_connector(self, [](const SchedulerConnector& of) { return of.has_work(); }); },
      "While true, the engine's loop should go on, and build iterations even if nothing is scheduled.");

  // --- counts ---
  scheduler.def(
      "saves",
      [](const Scheduler& self) {
        return as_record(dict_of(without_gil(self, [](const SchedulerConnector& of) { return of.saves(); })));
      },
      nb::sig("def saves(self) -> cairn._record.Record"),
      "What became of saves, in blocks; `shed` and those after it were dropped.");
  scheduler.def(
      "counts",
      [](Scheduler& self, std::optional<std::uint64_t> request) {
        if (request) {
          return as_record(cairn::python::dict_of(value_or_raise(
              with_connector(self, [&](const SchedulerConnector& of) { return of.counts(RequestHandle{*request}); }))));
        }
        return as_record(
            cairn::python::dict_of(without_gil(self, [](const SchedulerConnector& of) { return of.counts(); })));
      },
      "request"_a = nb::none(), nb::sig("def counts(self, request: int | None = None) -> cairn._record.Record"),
      "Counts of tokens: of a request, or of all (`total`, `last_requests`, `last_time`, `tenants`).");

  // --- control and ranks ---
  scheduler.def(
      "reset",
      [](Scheduler& self) {
        const ExclusiveUse one(self.is_busy, "scheduler");
        return as_record(cairn::python::dict_of(
            value_or_raise(without_gil(self, [](SchedulerConnector& of) { return of.reset(); }))));
      },
      nb::sig("def reset(self) -> cairn._record.Record"),
      "A fence: nothing that was saved before is found afterwards, on any rank.");
  scheduler.def(
      "invalidate",
      [](Scheduler& self, std::uint64_t weights_generation) {
        const ExclusiveUse one(self.is_busy, "scheduler");
        return as_record(cairn::python::dict_of(value_or_raise(
            without_gil(self, [&](SchedulerConnector& of) { return of.invalidate(weights_generation); }))));
      },
      "weights_generation"_a, nb::sig("def invalidate(self, weights_generation: int) -> cairn._record.Record"),
      "The engine has new weights: reset(), and a new generation.");
  scheduler.def_prop_ro(
      "manager", &Scheduler::manager, nb::sig("def manager(self) -> Manager"),
      "The connector's manager, for status, metrics, events and control. It ends with the scheduler.");
  scheduler.def(
      "status", [](Scheduler& self) { return self.manager().attr("status")(); },
      nb::sig("def status(self) -> cairn._record.Record"), "Of the manager.");
  scheduler.def(
      "wait_for_ranks",
      [](const Scheduler& self, double timeout) {
        const Duration longest = duration_of(timeout);
        check(without_gil(self, [&](const SchedulerConnector& of) { return of.wait_for_ranks(longest); }));
      },
      "timeout"_a = 60.0,
      "Waits until all ranks have joined. Raises ExpiredError, which names those that are missing.");
  scheduler.def(
      "rank_status",
      [](const Scheduler& self) {
        nb::list ranks;
        for (const RankStatus& each :
             without_gil(self, [](const SchedulerConnector& of) { return of.rank_status(); })) {
          nb::dict rank;
          rank["is_there"] = each.is_there;
          rank["generation"] = each.generation;
          rank["process"] = each.process;
          rank["block_bytes"] = each.block_bytes;
          rank["transfers"] = each.transfers;
          rank["reason"] = each.reason;
          ranks.append(rank);
        }
        return as_record(ranks);
      },
      nb::sig("def rank_status(self) -> list[cairn._record.Record]"));
  scheduler.def_prop_ro(
      "address",
      [](const Scheduler& self) -> std::optional<std::string> {
        const std::optional<RankAddress> address = self.use()->connector->address();
        return address ? std::optional(address->to_string()) : std::nullopt;
      },
      "Where ranks connect to; None if all ranks are in this process.");
}

}  // namespace cairn::python
