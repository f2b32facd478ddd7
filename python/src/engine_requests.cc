// cairn.EngineRequests: a Scheduler for an engine that keeps the tokens and block digests of each request in lists of its own,
// as vLLM does. A step reads what was appended to them here, so that nothing is done in Python for each request or block.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cairn/base/str_cat.h"
#include "cairn/connector/scheduler_connector.h"
#include "python/src/connectors.h"
#include "python/src/ending.h"

namespace cairn::python {

using namespace nb::literals;  // NOLINT(google-build-using-namespace): "name"_a

namespace {

std::size_t size_of(nb::handle list) { return static_cast<std::size_t>(PyList_Size(list.ptr())); }
// Borrowed: the list keeps the object.
PyObject* item(nb::handle list, std::size_t i) { return PyList_GetItem(list.ptr(), static_cast<Py_ssize_t>(i)); }

std::uint64_t number_of(PyObject* object, const char* what) {
  const std::uint64_t number = PyLong_AsUnsignedLongLong(object);
  if (number == UINT64_MAX && PyErr_Occurred() != nullptr) {
    PyErr_Clear();
    raise(ErrorCode::kInvalidArgument, str_cat(what, " is no number, or negative"));
  }
  return number;
}
std::uint32_t id_number_of(PyObject* object, const char* what) {
  const std::uint64_t number = number_of(object, what);
  if (number > UINT32_MAX) {
    raise(ErrorCode::kOutOfRange, str_cat(what, " is ", number, "; the highest is ", UINT32_MAX));
  }
  return static_cast<std::uint32_t>(number);
}

class EngineRequests {
 public:
  using Refusals = std::vector<std::pair<std::string, std::string>>;

  explicit EngineRequests(nb::object scheduler)
      : keep_(std::move(scheduler)),
        scheduler_(nb::cast<Scheduler&>(keep_)),
        block_size_(scheduler_.use()->manager.config().block_size) {}

  void add(const nb::str& id, const nb::list& tokens, const nb::list& digests) {
    Entry entry{.id = id.c_str(), .tokens = tokens, .digests = digests};
    clear();
    append_news(entry);
    const SchedulerConnector::NewRequest request{
        .tokens = tokens_,
        // A prompt without a full block has none, of whatever size.
        .block_digests = {.bytes = digest_bytes_, .size = digest_size_ != 0 ? digest_size_ : kLargestDigest},
    };
    const ExclusiveUse one(scheduler_.is_busy, "scheduler");
    const ManagerPtr owner = scheduler_.use();
    entry.handle = value_or_raise(owner->connector->add(RequestId(entry.id), request));
    std::size_t place = entries_.size();
    if (free_.empty()) {
      entries_.push_back(std::move(entry));
    } else {
      place = free_.back();
      free_.pop_back();
      entries_[place] = std::move(entry);
    }
    places_[id] = nb::int_(place);
  }

  [[nodiscard]] bool contains(const nb::str& id) const { return places_.contains(id); }
  [[nodiscard]] std::size_t size() const { return places_.size(); }
  [[nodiscard]] std::uint64_t handle(const nb::str& id) { return static_cast<std::uint64_t>(get(id).handle); }

  [[nodiscard]] SchedulerConnector::Match match(const nb::str& id, std::size_t local_tokens) {
    Entry& entry = get(id);
    if (!entry.blocks.empty()) {
      // The engine took its blocks back and has not said so yet: after a load that brought nothing, or because it resumes the
      // request in the step that preempts it.
      drop_blocks(entry);
    }
    if (entry.is_lost || entry.dropped_in == steps_) {
      return {};
    }
    const ExclusiveUse one(scheduler_.is_busy, "scheduler");
    const ManagerPtr owner = scheduler_.use();
    Result<SchedulerConnector::Match> match = [&] {
      const ReleaseGilIf released(entry.blocks_keyed >= kManyBlocks);
      return owner->connector->match(entry.handle, local_tokens);
    }();
    return value_or_raise(std::move(match));
  }

  void allocated(const nb::str& id, const nb::list& blocks, std::size_t local_tokens, std::size_t loaded_tokens) {
    Entry& entry = get(id);
    clear();
    append_blocks(blocks, 0);
    const ExclusiveUse one(scheduler_.is_busy, "scheduler");
    const ManagerPtr owner = scheduler_.use();
    check(owner->connector->allocated(entry.handle, as_block_ids(blocks_), local_tokens, loaded_tokens));
    entry.has_reached_scheduler = true;
    entry.blocks.insert(entry.blocks.end(), blocks_.begin(), blocks_.end());
  }

  // If it raises, what was read from the lists of some requests reaches nobody: those go on without a cache.
  std::pair<nb::bytes, Refusals> build(std::uint64_t number, const nb::list& ids, const nb::list& computed_tokens,
                                       const nb::list& new_blocks, const nb::dict& scheduled_tokens, nb::handle whole,
                                       nb::handle preempted) {
    clear();
    try {
      return build_all(number, ids, computed_tokens, new_blocks, scheduled_tokens, whole, preempted);
    } catch (...) {
      for (Entry* const entry : read_) {
        entry->is_lost = true;
        drop_blocks(*entry);
      }
      throw;
    }
  }

  bool finish(const nb::str& id, std::optional<std::size_t> computed_tokens, std::string_view ending) {
    const RequestEnding given = ending_of(ending);
    Entry& entry = get(id);
    const ExclusiveUse one(scheduler_.is_busy, "scheduler");
    const ManagerPtr owner = scheduler_.use();
    if (computed_tokens) {
      computed_tokens = std::min(*computed_tokens, entry.tokens_taken);
    }
    if (entry.is_lost) {
      computed_tokens.reset();
    }
    Result<bool> is_held = owner->connector->finish(entry.handle, computed_tokens, given);
    if (!is_held && computed_tokens) {  // what the engine says of its last step is not true: the step is not saved
      is_held = owner->connector->finish(entry.handle, std::nullopt, given);
    }
    std::erase(preempted_, entry.handle);
    const std::size_t place = place_of(id.ptr());
    entry = {};
    free_.push_back(place);
    nb::del(places_[id]);
    return value_or_raise(std::move(is_held));
  }

 private:
  static constexpr std::size_t kManyBlocks = 256;  // a lookup takes long enough to release the GIL
  static constexpr std::uint64_t kNever = UINT64_MAX;
  static constexpr std::size_t kLargestDigest = 32;

  struct Entry {
    RequestHandle handle{};
    std::string id;
    nb::object tokens;             // the engine's list of all tokens of the request
    nb::object digests;            // and of the digests of its full blocks
    std::size_t tokens_taken = 0;  // from the lists
    std::size_t blocks_keyed = 0;  // full blocks whose digests were taken
    std::vector<std::uint32_t> blocks = {};
    bool has_reached_scheduler = false;  // the scheduler was told of blocks of the request
    bool is_lost = false;                // the engine's lists contradict what it said before
    std::uint64_t dropped_in = kNever;   // the step that says that its blocks are gone
  };
  // Where what a request has new begins, in the columns of the step.
  struct Row {
    std::size_t token = 0;
    std::size_t block = 0;
    std::size_t digest = 0;
  };

  void clear() {
    tokens_.clear();
    blocks_.clear();
    digest_bytes_.clear();
    rows_.clear();
    read_.clear();
    scheduled_.clear();
  }

  [[nodiscard]] std::pair<nb::bytes, Refusals> build_all(std::uint64_t number, const nb::list& ids,
                                                         const nb::list& computed_tokens, const nb::list& new_blocks,
                                                         const nb::dict& scheduled_tokens, nb::handle whole,
                                                         nb::handle preempted) {
    const std::size_t count = ids.size();
    if (computed_tokens.size() != count || new_blocks.size() != count) {
      raise(ErrorCode::kInvalidArgument, str_cat("computed_tokens and new_blocks have ", computed_tokens.size(),
                                                 " and ", new_blocks.size(), " elements for ", count, " requests"));
    }
    Refusals refusals;
    for (const nb::handle id : nb::borrow<nb::iterable>(preempted)) {
      if (Entry* const entry = find(id)) {
        drop_blocks(*entry);
      }
    }
    const bool has_whole = PyObject_Size(whole.ptr()) > 0;
    for (std::size_t i = 0; i < count; ++i) {
      PyObject* const id = item(ids, i);
      Entry* const entry = find(id);
      if (entry == nullptr || entry->is_lost) {
        continue;
      }
      const bool is_whole = has_whole && PySequence_Contains(whole.ptr(), id) == 1;
      const Row row{.token = tokens_.size(), .block = blocks_.size(), .digest = digest_bytes_.size()};
      read_.push_back(entry);
      append_table(*entry, item(new_blocks, i), is_whole);
      if (!append_news(*entry)) {
        lose(*entry, row, refusals);
        continue;
      }
      rows_.push_back(row);
      SchedulerConnector::Scheduled& each = scheduled_.emplace_back();
      each.request = entry->handle;
      // Tokens that an engine computes before they are known count when they are: until then they may be drafts.
      each.computed_tokens =
          std::min<std::size_t>(number_of(item(computed_tokens, i), "computed_tokens"), entry->tokens_taken);
      PyObject* const scheduled = PyDict_GetItemWithError(scheduled_tokens.ptr(), id);
      each.scheduled_tokens = scheduled != nullptr ? number_of(scheduled, "scheduled_tokens") : 0;
    }
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      const Row& row = rows_[i];
      const Row end = i + 1 < rows_.size()
                          ? rows_[i + 1]
                          : Row{.token = tokens_.size(), .block = blocks_.size(), .digest = digest_bytes_.size()};
      SchedulerConnector::Scheduled& each = scheduled_[i];
      each.new_tokens = std::span(tokens_).subspan(row.token, end.token - row.token);
      each.new_blocks = as_block_ids(std::span(blocks_).subspan(row.block, end.block - row.block));
      if (end.digest > row.digest) {
        each.new_block_digests = {.bytes = std::span(digest_bytes_).subspan(row.digest, end.digest - row.digest),
                                  .size = digest_size_};
      }
    }
    const ExclusiveUse one(scheduler_.is_busy, "scheduler");
    const ManagerPtr owner = scheduler_.use();
    Status status;
    {
      const GilRelease released;
      status = owner->connector->build({.number = number, .preempted = preempted_, .scheduled = scheduled_},
                                       scheduler_.metadata);
    }
    check(status);
    preempted_.clear();
    ++steps_;
    for (Entry* const entry : read_) {
      entry->has_reached_scheduler = !entry->is_lost || entry->has_reached_scheduler;
    }
    for (const SchedulerConnector::Refused& each : owner->connector->refused()) {
      const auto entry = std::ranges::find(entries_, each.request, &Entry::handle);
      refusals.emplace_back(entry != entries_.end() ? entry->id : "", each.error.message);
    }
    return {nb::bytes(scheduler_.metadata.data(), scheduler_.metadata.size()), std::move(refusals)};
  }

  // The next step says that the request lost its blocks, if the scheduler knows of any.
  void drop_blocks(Entry& entry) {
    entry.blocks.clear();
    if (entry.has_reached_scheduler && entry.dropped_in != steps_) {
      entry.dropped_in = steps_;
      preempted_.push_back(entry.handle);
    }
  }

  [[nodiscard]] std::size_t place_of(PyObject* id) const {
    PyObject* const place = PyDict_GetItemWithError(places_.ptr(), id);
    return place != nullptr ? PyLong_AsSize_t(place) : SIZE_MAX;
  }
  [[nodiscard]] Entry* find(nb::handle id) {
    const std::size_t place = place_of(id.ptr());
    return place < entries_.size() ? &entries_[place] : nullptr;
  }
  [[nodiscard]] Entry& get(const nb::str& id) {
    Entry* const entry = find(id);
    if (entry == nullptr) {
      raise(ErrorCode::kNotFound, str_cat("there is no request ", id.c_str()));
    }
    return *entry;
  }

  void append_blocks(nb::handle list, std::size_t first) {
    const std::size_t count = size_of(list);
    for (std::size_t i = first; i < count; ++i) {
      blocks_.push_back(id_number_of(item(list, i), "a block id"));
    }
  }

  // The blocks that are new, from the engine's table or what it appended to it.
  void append_table(Entry& entry, PyObject* given, bool is_whole) {
    if (given == Py_None) {
      return;
    }
    PyObject* const list = PyTuple_Check(given) ? PyTuple_GetItem(given, 0) : given;
    if (list == nullptr || !PyList_Check(list)) {
      PyErr_Clear();
      raise(ErrorCode::kInvalidArgument, "new_blocks has neither None, a list nor a tuple of lists");
    }
    const std::size_t first = is_whole ? entry.blocks.size() : 0;
    const std::size_t before = blocks_.size();
    bool is_same = size_of(list) >= first;
    for (std::size_t i = 0; i < first && is_same; ++i) {
      is_same = id_number_of(item(list, i), "a block id") == entry.blocks[i];
    }
    if (!is_same) {
      drop_blocks(entry);  // the engine gave the request other blocks
    }
    append_blocks(list, is_same ? first : 0);
    entry.blocks.insert(entry.blocks.end(), blocks_.begin() + static_cast<std::ptrdiff_t>(before), blocks_.end());
  }

  // What was appended to the lists since they were read last. False if they are shorter than they were.
  bool append_news(Entry& entry) {
    const std::size_t known = size_of(entry.tokens);
    if (known < entry.tokens_taken) {
      return false;
    }
    for (std::size_t i = entry.tokens_taken; i < known; ++i) {
      tokens_.push_back(id_number_of(item(entry.tokens, i), "a token"));
    }
    entry.tokens_taken = known;
    const std::size_t full = std::min(size_of(entry.digests), known / block_size_);
    for (; entry.blocks_keyed < full; ++entry.blocks_keyed) {
      PyObject* const digest = item(entry.digests, entry.blocks_keyed);
      char* bytes = nullptr;
      Py_ssize_t size = 0;
      if (PyBytes_AsStringAndSize(digest, &bytes, &size) != 0) {
        throw nb::python_error();
      }
      if (digest_size_ == 0) {
        digest_size_ = static_cast<std::size_t>(size);
      } else if (digest_size_ != static_cast<std::size_t>(size)) {
        raise(ErrorCode::kInvalidArgument,
              str_cat("block digests of ", digest_size_, " and of ", size, " bytes; all have one length"));
      }
      const auto* const first = reinterpret_cast<const std::byte*>(bytes);
      digest_bytes_.insert(digest_bytes_.end(), first, first + size);
    }
    return true;
  }

  // Nobody knows what the blocks of the request hold: its saves are fenced, as for a preemption, and it has no cache from
  // now on.
  void lose(Entry& entry, const Row& row, Refusals& refusals) {
    tokens_.resize(row.token);
    blocks_.resize(row.block);
    digest_bytes_.resize(row.digest);
    entry.is_lost = true;
    drop_blocks(entry);
    refusals.emplace_back(entry.id, "the engine took back tokens of the request; it goes on without a cache");
  }

  const nb::object keep_;
  Scheduler& scheduler_;
  const std::size_t block_size_;
  std::size_t digest_size_ = 0;  // 0: none was seen
  nb::dict places_;              // by id, in entries_
  std::vector<Entry> entries_;
  std::vector<std::size_t> free_;  // places in entries_

  // Of a step; their memory is reused.
  std::vector<Token> tokens_;
  std::vector<std::uint32_t> blocks_;
  std::vector<std::byte> digest_bytes_;
  std::vector<Row> rows_;
  std::vector<Entry*> read_;  // requests whose lists were read
  std::vector<SchedulerConnector::Scheduled> scheduled_;

  std::vector<RequestHandle> preempted_;  // for the next step
  std::uint64_t steps_ = 0;
};

}  // namespace

void bind_engine_requests(nb::module_& module) {
  nb::class_<EngineRequests>(module, "EngineRequests",
                             R"(Requests whose tokens and block digests the engine keeps in lists.

add() is given the lists themselves; each build() reads what the engine has appended to them. Requests are named by their ids.)")
      .def(nb::init<nb::object>(), "scheduler"_a, nb::sig("def __init__(self, scheduler: Scheduler) -> None"))
      .def("add", &EngineRequests::add, "id"_a, "tokens"_a, "digests"_a,
           nb::sig("def add(self, id: str, tokens: list[int], digests: list[bytes]) -> None"),
           "A new request. The lists are kept and read again; the engine only appends to them.")
      .def("__contains__", &EngineRequests::contains, "id"_a)
      .def("__len__", &EngineRequests::size)
      .def("handle", &EngineRequests::handle, "id"_a, "The handle of the request in the scheduler.")
      .def("match", &EngineRequests::match, "id"_a, "local_tokens"_a = 0, "As Scheduler.match().")
      .def("allocated", &EngineRequests::allocated, "id"_a, "blocks"_a, nb::kw_only(), "local_tokens"_a = 0,
           "loaded_tokens"_a = 0,
           nb::sig(
               "def allocated(self, id: str, blocks: list[int], *, local_tokens: int = 0, loaded_tokens: int = 0) -> "
               "None"),
           "As Scheduler.allocated().")
      .def(
          "build", &EngineRequests::build, "number"_a, "ids"_a, "computed_tokens"_a, "new_blocks"_a,
          "scheduled_tokens"_a, "whole"_a = nb::tuple(), "preempted"_a = nb::tuple(),
          nb::sig("def build(self, number: int, ids: list[str], computed_tokens: list[int], "
                  "new_blocks: list[typing.Any], scheduled_tokens: dict[str, int], "
                  "whole: collections.abc.Collection[str] = (), preempted: collections.abc.Collection[str] = ()) -> "
                  "tuple[bytes, list[tuple[str, str]]]"),
          "The metadata of an iteration, and the requests that were refused, with the reason. `new_blocks` has None, a "
          "list, or a tuple of one list for each request: what was appended to its block table or, for those in "
          "`whole`, the whole table. Ids that were never added are left out.")
      .def("finish", &EngineRequests::finish, "id"_a, "computed_tokens"_a = nb::none(), "ending"_a = "unknown",
           "As Scheduler.finish(). The id is forgotten; the scheduler names it when its blocks are released.");
}

}  // namespace cairn::python
