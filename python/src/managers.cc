// cairn.Manager: its configuration, requests up and down, and control.
#include "python/src/managers.h"
#include "python/src/ending.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <thread>
#include <utility>
#include <vector>

#include "cairn/base/str_cat.h"
#include "cairn/manager/config_keys.h"
#include "cairn/server/log.h"
#include "python/src/duration.h"
#include "python/src/keys.h"

namespace cairn::python {

using namespace nb::literals;  // NOLINT(google-build-using-namespace): "name"_a

// --- lifetimes ---

namespace {

// By the order in which they were made. Guarded by the GIL.
std::vector<Closable*>& live() {
  static auto* all = new std::vector<Closable*>();  // never destroyed: objects may go after static ones
  return *all;
}

}  // namespace

Closable::Closable() { live().push_back(this); }
Closable::~Closable() { std::erase(live(), this); }

void Closable::close_all() {
  is_exiting_ = true;
  while (!live().empty()) {
    Closable* const last = live().back();
    live().pop_back();
    if (last->made_in_ != forks()) {
      continue;
    }
    try {
      last->close();
    } catch (const nb::python_error&) {
      // A thread is in a call of it, which nobody can end now.
    }
  }
  // A child has counted calls of the parent's threads.
  const TimePoint deadline = steady_clock().now() + std::chrono::seconds(10);
  while (forks() == 0 && GilRelease::is_any() && steady_clock().now() < deadline) {
    const nb::gil_scoped_release released;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  GilRelease::end();
  // The interpreter ends daemon threads wherever they are, with the objects that they hold: those are no leaks of ours.
  if (nb::cast<int>(nb::module_::import_("threading").attr("active_count")()) > 1) {
    nb::set_leak_warnings(false);
  }
}

ManagerPtr own(std::unique_ptr<SchedulerConnector> connector, KvBlockManager manager,
               std::unique_ptr<HttpServer> server) {
  return {new ManagerOwner{std::move(connector), std::move(manager), std::move(server)}, [](ManagerOwner* owner) {
            const GilRelease released;
            delete owner;
          }};
}

nb::object Manager::pool(CacheLevel level) {
  const ManagerPtr owner = use();
  BlockPool* const pool = owner->manager.pool(level);
  nb::object& made = pools_[index_of(level)];
  if (pool != nullptr && !made.is_valid()) {
    made = nb::cast(PoolHandle(PoolRef{owner, pool}));
  }
  return pool == nullptr ? nb::none() : made;
}

void Manager::close() {
  for (nb::object& pool : pools_) {
    if (pool.is_valid()) {
      PoolHandle closed(std::move(nb::cast<PoolHandle&>(pool)));  // what is left of it raises "closed"
      pool.reset();
    }
  }
  const std::unique_ptr<ManagerPtr> owner = owner_.close();
  if (owner != nullptr) {
    for (CloseListener* const listener : std::exchange(listeners_, {})) {
      listener->on_close(**owner);
    }
  }
  if (owner != nullptr && owner->use_count() > 1 &&
      PyErr_WarnEx(
          PyExc_ResourceWarning,
          "this manager is closed, but handles to its blocks or loads are still alive, or another thread is in a "
          "call; it stops when the last of them is gone",
          1) != 0) {
    throw nb::python_error();
  }
}

// --- values ---

const char* kept(std::string text) {
  static auto* const texts = new std::deque<std::string>();
  return texts->emplace_back(std::move(text)).c_str();
}

CacheLevel level_of(std::string_view name) {
  for (const CacheLevel level : {CacheLevel::kG1, CacheLevel::kG2, CacheLevel::kG3}) {
    if (name == name_of(level) || name == to_string(level)) {
      return level;
    }
  }
  raise(ErrorCode::kInvalidArgument, str_cat("unknown tier '", name, "'; expected device, host or disk"));
}

const char* name_of(CacheLevel level) {
  constexpr const char* kNames[kCacheLevels] = {"device", "host", "disk", "remote"};
  return kNames[index_of(level)];
}

RetentionHint hint_of(std::string_view kind, double after) {
  using Kind = RetentionHint::Kind;
  constexpr std::pair<std::string_view, Kind> kKinds[] = {{"none", Kind::kNone},
                                                          {"returns", Kind::kReturns},
                                                          {"system_prompt", Kind::kSystemPrompt},
                                                          {"will_not_return", Kind::kWillNotReturn}};
  for (const auto& [name, value] : kKinds) {
    if (kind == name) {
      return {.kind = value, .in = duration_of(after)};
    }
  }
  raise(ErrorCode::kInvalidArgument,
        str_cat("unknown hint '", kind, "'; expected returns, system_prompt, will_not_return or none"));
}

nb::object as_record(nb::handle value) { return nb::module_::import_("cairn._record").attr("record")(value); }

nb::dict dict_of(const TokenCounts& counts) {
  nb::dict all;
  for (const auto& [name, count] : kTokenCounts) {
    all[nb::str(name.data(), name.size())] = counts.*count;
  }
  all["hit_rate"] = counts.hit_rate();
  return all;
}

nb::dict dict_of(const ResetReport& report) {
  nb::dict all;
  all["reset"] = report.reset;
  all["in_use"] = report.in_use;
  all["copies"] = report.copies;
  all["loads"] = report.loads;
  return all;
}

// --- configuration ---

namespace {

// "host.size" for host_size; the name itself if there is no such key.
std::string key_named(std::string_view name) {
  const auto is_same = [](char a, char b) { return a == b || (a == '.' && b == '_'); };
  for (const ConfigKey& key : config_keys()) {
    if (std::ranges::equal(key.name, name, is_same)) {
      return key.name;
    }
  }
  return std::string(name);
}

std::string text_of(nb::handle value) {
  if (PyBool_Check(value.ptr())) {
    return value.ptr() == Py_True ? "true" : "false";
  }
  if (nb::hasattr(value, "__fspath__")) {
    return nb::cast<std::string>(nb::str(value.attr("__fspath__")()));
  }
  return nb::cast<std::string>(nb::str(value));
}

// Appends "host.size=8GiB" for each value; None leaves the key at its default.
void add_settings(nb::dict values, const std::string& section, std::vector<std::string>& settings) {
  for (const auto& [key, value] : values) {
    const std::string name = nb::cast<std::string>(nb::str(key));
    const std::string full = section.empty() ? name : section + "." + name;
    if (nb::isinstance<nb::dict>(value)) {
      add_settings(nb::borrow<nb::dict>(value), full, settings);
    } else if (!value.is_none()) {
      settings.push_back((section.empty() ? key_named(full) : full) + "=" + text_of(value));
    }
  }
}

}  // namespace

ManagerConfig config_of(const ConfigArguments& arguments) {
  ConfigSources sources{.toml = arguments.toml, .file = arguments.file};
  if (arguments.environment) {
    sources.environment = ManagerConfig::environment_of_process();
  }
  if (!arguments.values.is_none()) {
    if (!nb::isinstance<nb::dict>(arguments.values)) {
      raise(ErrorCode::kInvalidArgument,
            "the configuration is not a dict; use from_toml() for a text, from_file() for a file");
    }
    add_settings(nb::borrow<nb::dict>(arguments.values), "", sources.settings);
  }
  if (arguments.keys.is_valid()) {
    add_settings(arguments.keys, "", sources.settings);
  }
  return value_or_raise(read_config(sources));
}

namespace {

Manager* make_manager(Manager* place, const ConfigArguments& arguments) {
  const ManagerConfig config = config_of(arguments);
  ManagerParts parts;
  std::shared_ptr<Log> log = log_incidents(config, parts);
  std::optional<Result<KvBlockManager>> made;
  {
    const GilRelease released;
    made.emplace(KvBlockManager::make(config, parts));
  }
  KvBlockManager ready = value_or_raise(*std::move(made));
  std::unique_ptr<HttpServer> server = value_or_raise(HttpServer::start(ready, std::move(log)));
  return new (place) Manager(own(nullptr, std::move(ready), std::move(server)));
}

nb::object make_from(const ConfigArguments& arguments) {
  nb::object object = nb::inst_alloc(nb::type<Manager>());
  make_manager(nb::inst_ptr<Manager>(object), arguments);
  nb::inst_mark_ready(object);
  return object;
}

std::string path_of(nb::handle path) { return nb::cast<std::string>(nb::module_::import_("os").attr("fspath")(path)); }

// Calls without the GIL, and keeps the manager meanwhile.
template <typename Call>
auto without_gil(const Manager& manager, Call call) {
  const ManagerPtr owner = manager.use();
  const GilRelease released;
  return call(owner->manager);
}

nb::object reset(const Manager& manager, const std::optional<std::string>& tier) {
  const std::optional<CacheLevel> level = tier ? std::optional(level_of(*tier)) : std::nullopt;
  return as_record(dict_of(value_or_raise(
      without_gil(manager, [&](const KvBlockManager& of) { return level ? of.reset(*level) : of.reset_all(); }))));
}

ResetOutcome reset_keys(const Manager& manager, std::string_view tier, const KeysArgument& keys) {
  const CacheLevel level = level_of(tier);
  return without_gil(manager, [&](const KvBlockManager& of) { return of.reset(level, keys.get()); });
}

// The keys of a prompt's full blocks.
Keys hash_prompt(const Manager& manager, TokensArgument tokens, const std::string& salt, const std::string& lora_name,
                 std::vector<MmRun> mm_runs) {
  const std::span<const Token> given = tokens.get();
  return Keys(value_or_raise(without_gil(manager, [&](const KvBlockManager& of) -> Result<std::vector<BlockKey>> {
    std::ranges::sort(mm_runs, {}, &MmRun::offset);
    std::vector<BlockKey> keys(given.size() / of.block_size());
    CAIRN_TRY(hash_blocks(given, of.block_size(), of.hasher().with({.salt = salt, .lora_name = lora_name}),
                          std::nullopt, keys, {}, mm_runs));
    return keys;
  })));
}

}  // namespace

void bind_manager(nb::module_& module) {
  nb::class_<PrefixLocation>(module, "PrefixLocation", "Where the longest prefix of a list of keys is.")
      .def_prop_ro("blocks", &PrefixLocation::blocks, "How many keys, from the first on, some tier has.")
      .def("__len__", &PrefixLocation::blocks)
      .def_prop_ro(
          "levels",
          [](const PrefixLocation& at) {
            std::vector<std::uint8_t> levels(at.levels.size());
            std::ranges::transform(at.levels, levels.begin(),
                                   [](CacheLevel level) { return static_cast<std::uint8_t>(level); });
            return make_array(std::move(levels));
          },
          nb::rv_policy::automatic, "The nearest tier of each block, as a numpy array: 0 device, 1 host, 2 disk.")
      .def(
          "count",
          [](const PrefixLocation& at, std::string_view tier) { return std::ranges::count(at.levels, level_of(tier)); },
          "tier"_a, "How many of the blocks have this as their nearest tier.")
      .def("__repr__", [](const PrefixLocation& at) {
        const auto count = [&at](CacheLevel level) { return std::ranges::count(at.levels, level); };
        return str_cat("PrefixLocation(blocks=", at.blocks(), ", device=", count(CacheLevel::kG1),
                       ", host=", count(CacheLevel::kG2), ", disk=", count(CacheLevel::kG3), ")");
      });

  nb::class_<Manager> manager(module, "Manager",
                              R"(Keeps the KV blocks of one worker in device memory, host memory and on disk.

    Manager({"block_size": 16, "model": {...}, "host": {"size": "8GiB"}})
    Manager(block_size=16, model={"layers": 32, ...}, host_size="8GiB")
    Manager.from_file("cairn.toml", host_size="16GiB")

Keys are those of docs/configuration.md, nested, dotted, or with underscores as keyword arguments. An error lists all
mistakes. `environment=True` also reads the variables CAIRN_*. Use it in a `with` statement, or call close().)");
  manager.def(
      "__init__",
      [](Manager* self, const nb::object& config, bool environment, const nb::kwargs& keys) {
        make_manager(self, {.values = config, .environment = environment, .keys = keys});
      },
      "config"_a = nb::none(), nb::kw_only(), "environment"_a = false, "keys"_a,
      nb::sig("def __init__(self, config: dict[str, typing.Any] | None = None, *, environment: bool = False, **keys: "
              "typing.Any) -> "
              "None"));
  manager.def_static(
      "from_toml",
      [](const std::string& text, bool environment, const nb::kwargs& keys) {
        return make_from({.toml = text, .environment = environment, .keys = keys});
      },
      "text"_a, nb::kw_only(), "environment"_a = false, "keys"_a,
      nb::sig("def from_toml(text: str, *, environment: bool = False, **keys: typing.Any) -> Manager"),
      "A manager with the configuration in a TOML text.");
  manager.def_static(
      "from_file",
      [](nb::handle path, bool environment, const nb::kwargs& keys) {
        return make_from({.file = path_of(path), .environment = environment, .keys = keys});
      },
      "path"_a, nb::kw_only(), "environment"_a = false, "keys"_a,
      nb::sig(
          "def from_file(path: str | os.PathLike[str], *, environment: bool = False, **keys: typing.Any) -> Manager"),
      "A manager with the configuration in a TOML file.");
  manager.def("close", &Manager::close,
              "Stops the manager: nothing new begins, copies in flight are waited for up to `shutdown`, the disk is "
              "flushed. Block handles that are still alive put the stop off until the last of them is gone.");
  manager.def_prop_ro("closed", &Manager::is_closed);
  manager.def("__enter__", [](nb::handle self) { return nb::borrow(self); }, nb::sig("def __enter__(self) -> Manager"));
  manager.def(
      "__exit__", [](Manager& self, const nb::args&) { self.close(); },
      nb::sig("def __exit__(self, *args: object) -> None"));
  manager.def("__repr__", [](const Manager& self) -> std::string {
    if (self.is_closed()) {
      return "<cairn.Manager closed>";
    }
    const ManagerPtr owner = self.use();
    std::string text = "<cairn.Manager";
    for (const CacheLevel level : {CacheLevel::kG1, CacheLevel::kG2, CacheLevel::kG3}) {
      if (const BlockPool* const pool = owner->manager.pool(level)) {
        text += str_cat(" ", name_of(level), "=", pool->counts().registered, "/", pool->capacity());
      }
    }
    return text + " blocks>";
  });

  // --- tiers and keys ---
  for (const CacheLevel level : {CacheLevel::kG1, CacheLevel::kG2, CacheLevel::kG3}) {
    manager.def_prop_ro(
        name_of(level), [level](Manager& self) { return self.pool(level); },
        nb::sig(kept(str_cat("def ", name_of(level), "(self) -> BlockPool | None"))),
        "The pool of the tier; None if there is no such tier, or an engine manages it.");
  }
  manager.def_prop_ro("block_size", [](const Manager& self) { return self.get().block_size(); }, "Tokens in a block.");
  manager.def_prop_ro(
      "http_address",
      [](const Manager& self) {
        const ManagerPtr owner = self.use();
        return owner->server == nullptr ? std::optional<std::string>() : std::optional(owner->server->address());
      },
      "Where the HTTP API, metrics and dashboard are, such as '127.0.0.1:9470'; None unless http.listen is given.");
  manager.def_prop_ro("worker_id", [](const Manager& self) { return self.get().worker_id(); });
  manager.def_prop_ro("dp_rank", [](const Manager& self) { return self.get().dp_rank(); });
  manager.def_prop_ro(
      "hasher", [](const Manager& self) { return self.get().hasher(); }, "Makes the keys of this manager's blocks.");
  manager.def("keys", &hash_prompt, "tokens"_a, nb::kw_only(), "salt"_a = "", "lora_name"_a = "",
              "mm_runs"_a = std::vector<MmRun>(),
              "The keys of the full blocks of a prompt, made as model.scheme says.");
  manager.def_prop_ro(
      "config",
      [](const Manager& self) {
        const ManagerPtr owner = self.use();
        nb::dict all;
        for (const ConfigKey& key : config_keys()) {
          if (!key.is_secret) {
            all[nb::str(key.name.c_str())] = key.print(owner->manager.config());
          }
        }
        return all;
      },
      nb::sig("def config(self) -> dict[str, str]"), "Every key but secrets, dotted, with its value as a text.");

  // --- up and down: loads.cc has load(), onboard(), prefetch() and offload() ---
  manager.def(
      "locate",
      [](const Manager& self, const KeysArgument& keys) {
        return without_gil(self, [&](const KvBlockManager& of) { return of.locate(keys.get()); });
      },
      "keys"_a, "Looks the keys up in all tiers, without an effect on them.");
  manager.def(
      "contains",
      [](const Manager& self, const KeysArgument& keys) {
        std::vector<std::uint8_t> found(keys.size());
        without_gil(self, [&](const KvBlockManager& of) {
          std::ranges::transform(keys.get(), found.begin(), [&of](const BlockKey& key) {
            return static_cast<std::uint8_t>(of.locate({&key, 1}).blocks());
          });
        });
        return make_array(std::move(found));
      },
      "keys"_a, nb::rv_policy::automatic,
      "For each key, 1 if a tier that can be read has it and 0 if not, as a numpy array; without an effect.");
  manager.def(
      "worth_loading",
      [](const Manager& self, const KeysArgument& keys, std::uint32_t first_block, std::uint32_t total_tokens) {
        return without_gil(self, [&](const KvBlockManager& of) {
          return of.worth_loading(of.locate(keys.get()), {.first_block = first_block, .total_tokens = total_tokens})
              .blocks;
        });
      },
      "keys"_a, nb::kw_only(), "first_block"_a = 0, "total_tokens"_a = 0,
      "How many of the keys, from the first on, are faster to load than to compute.");
  manager.def(
      "report",
      [](const Manager& self, double seconds, std::uint64_t prefill_tokens, std::uint64_t prefill_context,
         std::uint64_t decode_tokens, std::uint64_t decode_context, bool is_full) {
        self.get().report({.prefill_tokens = prefill_tokens,
                           .prefill_context = prefill_context,
                           .decode_tokens = decode_tokens,
                           .decode_context = decode_context,
                           .is_full = is_full,
                           .duration = duration_of(seconds)});
      },
      "seconds"_a, nb::kw_only(), "prefill_tokens"_a = 0, "prefill_context"_a = 0, "decode_tokens"_a = 0,
      "decode_context"_a = 0, "is_full"_a = false,
      "What the engine computed in one iteration: loads are weighed against its speed.");
  manager.def(
      "hint",
      [](const Manager& self, const KeysArgument& keys, std::string_view kind, double after) {
        const RetentionHint given = hint_of(kind, after);
        return value_or_raise(without_gil(self, [&](const KvBlockManager& of) { return of.hint(keys.get(), given); }));
      },
      "keys"_a, "kind"_a, "after"_a = 0.0,
      "Says whether blocks are needed again: `returns` (in about `after` seconds), `system_prompt`, "
      "`will_not_return` or `none`. Returns how many blocks were found. Needs requests.retention.");
  manager.def(
      "end_request",
      [](const Manager& self, const KeysArgument& keys, std::string_view ending) {
        const RequestEnding given = ending_of(ending);
        return without_gil(self, [&](const KvBlockManager& of) { return of.end_request(keys.get(), given); });
      },
      "keys"_a, "ending"_a,
      "The request whose sequence these keys are ended: `tool_call`, `end_of_turn`, `length`, `abort` or `unknown`. "
      "The "
      "eviction policies of all tiers use it. Returns how many blocks were found.");

  // --- control ---
  manager.def("reset", &reset, "tier"_a = nb::none(),
              nb::sig("def reset(self, tier: str | None = None) -> cairn._record.Record"),
              "A fence: nothing that was stored before is found afterwards, in one tier or in all.");
  manager.def("reset_keys", &reset_keys, "tier"_a, "keys"_a,
              "Drops these blocks of the tier, without a fence: blocks in use stay, and a copy may store one again.");
  manager.def(
      "invalidate",
      [](const Manager& self, std::uint64_t weights_generation) {
        return as_record(dict_of(value_or_raise(
            without_gil(self, [&](const KvBlockManager& of) { return of.invalidate(weights_generation); }))));
      },
      "weights_generation"_a, nb::sig("def invalidate(self, weights_generation: int) -> cairn._record.Record"),
      "The weights of the model have changed: reset(), and blocks that are stored from now on are of this generation.");
  manager.def_prop_ro("weights_generation", [](const Manager& self) { return self.get().weights_generation(); });
  manager.def(
      "pause",
      [](const Manager& self, std::string_view from, std::string_view to) {
        check(self.get().pause(level_of(from), level_of(to)));
      },
      "above"_a, "below"_a, "Nothing new is copied over the link between the two tiers until resume().");
  manager.def(
      "resume",
      [](const Manager& self, std::string_view from, std::string_view to) {
        check(self.get().resume(level_of(from), level_of(to)));
      },
      "above"_a, "below"_a);
  manager.def(
      "resize_host",
      [](const Manager& self, std::uint32_t blocks) {
        check(without_gil(self, [&](const KvBlockManager& of) { return of.resize_host(blocks); }));
      },
      "blocks"_a, "Sets how many blocks of the host tier may be used: 1 to what host.max_size allows.");
  manager.def(
      "drain",
      [](const Manager& self, double timeout) {
        const Duration longest = duration_of(timeout);
        check(without_gil(self, [&](const KvBlockManager& of) { return of.drain(longest); }));
      },
      "timeout"_a = 60.0,
      "Waits until nothing is pending or in flight on any link. Raises ExpiredError after `timeout` seconds.");

  module.def("_close_all", &Closable::close_all);
  nb::module_::import_("atexit").attr("register")(module.attr("_close_all"));
}

}  // namespace cairn::python
