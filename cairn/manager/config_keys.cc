#include "cairn/manager/config_keys.h"

#include <algorithm>
#include <initializer_list>
#include <limits>
#include <type_traits>
#include <utility>

#include "cairn/base/ids.h"
#include "cairn/base/str_cat.h"
#include "cairn/evict/reuse_history.h"
#include "cairn/manager/config_values.h"
#include "cairn/pool/blocks.h"

namespace cairn {
namespace {

// An enumerator and its name in a configuration.
template <typename T>
using Name = std::pair<T, std::string_view>;

template <typename T>
std::vector<Name<T>> names_of(std::span<const T> all) {
  std::vector<Name<T>> names;
  for (const T value : all) {
    names.emplace_back(value, to_string(value));
  }
  return names;
}

constexpr Name<DeviceMemory> kMemories[] = {{DeviceMemory::kGpu, "gpu"}, {DeviceMemory::kSystem, "system"}};
constexpr Name<Duplicates> kDuplicates[] = {{Duplicates::kReject, "reject"}, {Duplicates::kAllow, "allow"}};
constexpr Name<GpuCalibration> kCalibrations[] = {
    {GpuCalibration::kCached, "cached"}, {GpuCalibration::kFresh, "fresh"}, {GpuCalibration::kOff, "off"}};
constexpr Name<Pinning> kPinnings[] = {
    {Pinning::kPreferred, "preferred"}, {Pinning::kRequired, "required"}, {Pinning::kOff, "off"}};
constexpr Name<HugePages> kPages[] = {{HugePages::kNone, "none"},
                                      {HugePages::kTransparent, "transparent"},
                                      {HugePages::k2MiB, "2MiB"},
                                      {HugePages::k1GiB, "1GiB"}};
constexpr Name<DiskOpening> kOpenings[] = {
    {DiskOpening::kReuse, "reuse"}, {DiskOpening::kExisting, "existing"}, {DiskOpening::kFresh, "fresh"}};
constexpr Name<EventFormat> kFormats[] = {{EventFormat::kVllm, "vllm"}, {EventFormat::kDynamo, "dynamo"}};
constexpr Name<EventMode> kModes[] = {{EventMode::kDedup, "dedup"}, {EventMode::kPassthrough, "passthrough"}};
constexpr Name<IoMethod> kMethods[] = {
    {IoMethod::kBest, "best"}, {IoMethod::kUring, "io_uring"}, {IoMethod::kThreads, "threads"}};

struct ElementType {
  std::string_view name;
  std::uint32_t bits;
};
constexpr ElementType kElementTypes[] = {{"f32", 32}, {"bf16", 16}, {"f16", 16}, {"fp8_e4m3", 8}, {"fp8_e5m2", 8},
                                         {"int8", 8}, {"uint8", 8}, {"int4", 4}, {"nvfp4", 4},    {"fp4", 4}};

// "a, b or c"
template <typename Range, typename Name>
std::string either(const Range& range, Name name) {
  std::string words;
  for (auto at = std::begin(range); at != std::end(range); ++at) {
    words += at == std::begin(range) ? "" : std::next(at) == std::end(range) ? " or " : ", ";
    words += name(*at);
  }
  return words;
}

// The value of a key in a ManagerConfig. Made of a lambda that returns a reference to it; two pointers to functions, so that what
// parses and prints is compiled for each type of value and not for each key.
template <typename T>
class Field {
 public:
  template <typename At>
  Field(At at) : in_(at), in_const_(at) {}  // NOLINT(google-explicit-constructor): a lambda is a field

  [[nodiscard]] T& in(ManagerConfig& config) const { return in_(config); }
  [[nodiscard]] const T& in(const ManagerConfig& config) const { return in_const_(config); }

 private:
  T& (*in_)(ManagerConfig&);
  const T& (*in_const_)(const ManagerConfig&);
};
template <typename At>
Field(At) -> Field<std::remove_reference_t<std::invoke_result_t<At, ManagerConfig&>>>;

class List {
 public:
  std::vector<ConfigKey> take() && { return std::move(keys_); }

  ConfigKey& last() { return keys_.back(); }

  // The keys that are added next belong to this section.
  void section(std::string name) { section_ = std::move(name); }

  template <typename T>
  void whole(std::string_view name, std::string_view help, Field<T> field, std::uint64_t least = 0,
             std::uint64_t most = std::numeric_limits<T>::max()) {
    std::string values = most == std::numeric_limits<T>::max() ? str_cat("a whole number, at least ", least)
                                                               : str_cat("a whole number from ", least, " to ", most);
    add<T>(
        name, help, std::move(values), field,
        [least, most](std::string_view text) -> std::optional<T> {
          const std::optional<std::uint64_t> value = parse_whole(text, least, most);
          return value ? std::optional(static_cast<T>(*value)) : std::nullopt;
        },
        [](T value) { return std::to_string(value); });
  }

  void size(std::string_view name, std::string_view help, Field<std::uint64_t> field) {
    add<std::uint64_t>(name, help, str_cat("a size such as 64GiB (in ", kSizeUnits, ")"), field, parse_size,
                       print_size);
  }

  void duration(std::string_view name, std::string_view help, Field<Duration> field) {
    add<Duration>(name, help, str_cat("a time such as 250ms (in ", kTimeUnits, ")"), field, parse_duration,
                  print_duration);
  }

  // A time, or none.
  void optional_duration(std::string_view name, std::string_view help, Field<std::optional<Duration>> field) {
    add<std::optional<Duration>>(
        name, help, str_cat("none, or a time such as 250ms (in ", kTimeUnits, ")"), field,
        [](std::string_view text) -> std::optional<std::optional<Duration>> {
          const std::optional<Duration> time = parse_duration(text);
          if (!time && text != "none") {
            return std::nullopt;
          }
          return std::optional<std::optional<Duration>>(std::in_place, time);
        },
        [](const std::optional<Duration>& time) { return time ? print_duration(*time) : std::string("none"); });
  }

  void share(std::string_view name, std::string_view help, Field<double> field, double most) {
    add<double>(
        name, help, str_cat("a share from 0 to ", print_real(most), ", such as 0.05 or 5%"), field,
        [most](std::string_view text) { return parse_share(text, 0, most); }, print_real);
  }

  void flag(std::string_view name, std::string_view help, Field<bool> field) {
    add<bool>(name, help, "true or false", field, parse_flag,
              [](bool value) { return std::string(value ? "true" : "false"); });
  }

  void text(std::string_view name, std::string_view help, Field<std::string> field) {
    add<std::string>(
        name, help, "text in UTF-8, without control characters", field,
        [](std::string_view text) { return is_plain_text(text) ? std::optional(std::string(text)) : std::nullopt; },
        [](const std::string& value) { return value; });
    keys_.back().is_text = true;
  }

  template <typename T>
  void choice(std::string_view name, std::string_view help, Field<T> field,
              std::span<const std::type_identity_t<Name<T>>> known) {
    const std::vector<Name<T>> names(known.begin(), known.end());
    std::string values = either(names, [](const Name<T>& one) { return one.second; });
    add<T>(
        name, help, std::move(values), field,
        [names](std::string_view text) -> std::optional<T> {
          const auto found = std::ranges::find(names, text, &Name<T>::second);
          return found == names.end() ? std::nullopt : std::optional(found->first);
        },
        [names](T value) {
          const auto found = std::ranges::find(names, value, &Name<T>::first);
          return std::string(found == names.end() ? "unknown" : found->second);
        });
    keys_.back().is_text = true;
  }

  // A key with its own functions to parse and print a value.
  template <typename T, typename Parse, typename Print>
  void add(std::string_view name, std::string_view help, std::string values, Field<T> field, Parse parse, Print print) {
    ConfigKey& key = add(name, help, std::move(values));
    key.parse = [field, parse](ManagerConfig& config, std::string_view text) {
      const auto value = parse(text);
      if (!value) {
        return false;
      }
      field.in(config) = *value;
      return true;
    };
    key.print = [field, print](const ManagerConfig& config) { return print(field.in(config)); };
  }

  // A key whose parse() and print() the caller sets.
  ConfigKey& add(std::string_view name, std::string_view help, std::string values) {
    ConfigKey& key = keys_.emplace_back();
    key.name = section_.empty() ? std::string(name) : str_cat(section_, ".", name);
    key.help = help;
    key.values = std::move(values);
    return key;
  }

 private:
  std::string section_;
  std::vector<ConfigKey> keys_;
};

void add_model(List& list) {
  list.section("model");
  list.text("name", "Name of the model; models that differ in any key of [model] share no blocks",
            [](auto& c) -> auto& { return c.model.name; });
  list.text("tenant", "Name of the tenant; tenants share no blocks", [](auto& c) -> auto& { return c.model.tenant; });
  list.whole("weights_generation", "Increase it whenever the weights change under the same name",
             Field([](auto& c) -> auto& { return c.model.weights_generation; }));
  list.text("shard", "Part of the model that the blocks hold, such as tp0/2; empty for the whole model",
            [](auto& c) -> auto& { return c.model.shard; });
  list.choice(
      "scheme",
      "How keys are made: native uses the secret; dynamo and router keys can be forged; vllm and sglang take digests",
      Field([](auto& c) -> auto& { return c.model.scheme; }), names_of<KeyScheme>(kAllSchemes));
  list.add(
      "secret", "Secret that keys are made with; empty for the one in the disk tier's file, or a random one",
      "64 hexadecimal digits", Field([](auto& c) -> auto& { return c.model.secret; }),
      [](std::string_view text) {
        return text.empty() || KeySecret::from_hex(text) ? std::optional(std::string(text)) : std::nullopt;
      },
      [](const std::string& value) { return value; });
  list.last().is_text = true;
  list.last().is_secret = true;
  list.text("secret_file", "File that holds the secret and nothing else",
            [](auto& c) -> auto& { return c.model.secret_file; });
  list.whole("layers", "Layers that have a KV cache", Field([](auto& c) -> auto& { return c.model.layers; }));
  list.whole("kv", "2 for keys and values, 1 if they are stored together (MLA)",
             Field([](auto& c) -> auto& { return c.model.kv; }), 1, 2);
  list.whole("heads", "KV heads in this shard", Field([](auto& c) -> auto& { return c.model.heads; }));
  list.whole("head_size", "Elements in a head", Field([](auto& c) -> auto& { return c.model.head_size; }));
  list.add(
      "element_type", "Type of an element", either(kElementTypes, [](const ElementType& t) { return t.name; }),
      Field([](auto& c) -> auto& { return c.model.element_type; }),
      [](std::string_view text) { return element_bits(text) ? std::optional(std::string(text)) : std::nullopt; },
      [](const std::string& value) { return value; });
  list.add(
      "groups",
      "Layer groups of a hybrid model, name:kind for each: full, sliding:WINDOW, chunked:WINDOW or state, and @TOKENS "
      "if its blocks are larger than block_size; empty if all layers share one block table",
      "a list such as global:full, local:sliding:1024, ssm:state@64",
      Field([](auto& c) -> auto& { return c.model.groups; }), parse_groups,
      [](const std::vector<CacheGroup>& groups) { return print_groups(groups); });
  list.last().is_text = true;
}

// The keys that every tier has. `At` returns the tier; a lambda without a state, made anew in each field.
template <typename At>
void add_tier(List& list, const std::string& section, At /*at*/) {
  list.section(section);
  list.whole("blocks", "Capacity in blocks; give this or size, or neither for no such tier",
             Field([](auto& c) -> auto& { return At()(c).blocks; }), 0, index_of(kNoBlock) - 1);
  list.size("size", "Capacity in bytes", [](auto& c) -> auto& { return At()(c).size; });
  list.choice("policy", "Which block is evicted first", Field([](auto& c) -> auto& { return At()(c).policy; }),
              names_of<PolicyKind>(kAllPolicies));
  list.flag("leaves_first", "Evict a block only after all blocks that continue its prefix",
            [](auto& c) -> auto& { return At()(c).leaves_first; });
}

void add_tiers(List& list) {
  add_tier(list, "device", [](auto& c) -> auto& { return c.device; });
  list.choice("memory", "Memory of a GPU, or system memory in its place on machines without one",
              Field([](auto& c) -> auto& { return c.device.memory; }), kMemories);
  list.whole("gpu", "CUDA device number", Field([](auto& c) -> auto& { return c.device.gpu; }));
  list.choice("calibration",
              "Whether copies of the GPU are tuned by a measurement of two seconds. cached: once, kept in "
              "XDG_CACHE_HOME/cairn; "
              "fresh: now; off: defaults",
              Field([](auto& c) -> auto& { return c.device.calibration; }), kCalibrations);
  list.choice("layout", "Layout of blocks in memory that Cairn allocates",
              Field([](auto& c) -> auto& { return c.device.layout; }), names_of<Arrangement>(kAllArrangements));
  list.choice("duplicates", "Whether several blocks may be registered under one key",
              Field([](auto& c) -> auto& { return c.device.duplicates; }), kDuplicates);

  add_tier(list, "host", [](auto& c) -> auto& { return c.host; });
  list.size("max_size", "Largest size that the tier can be resized to; 0 for its initial size",
            [](auto& c) -> auto& { return c.host.max_size; });
  list.choice("pinning",
              "Whether memory is pinned, so that GPUs copy from it directly; preferred falls back to pageable memory",
              Field([](auto& c) -> auto& { return c.host.pinning; }), kPinnings);
  list.choice("huge_pages", "Page size", Field([](auto& c) -> auto& { return c.host.huge_pages; }), kPages);
  ConfigKey& node = list.add("numa_node", "NUMA node that memory is allocated on", "any, or the number of a node");
  node.parse = [](ManagerConfig& config, std::string_view text) {
    const std::optional<std::uint64_t> number = parse_whole(text, 0, std::numeric_limits<int>::max());
    if (number) {
      config.host.numa_node = static_cast<int>(*number);
    } else if (text == "any") {
      config.host.numa_node.reset();
    }
    return number || text == "any";
  };
  node.print = [](const ManagerConfig& config) {
    return config.host.numa_node ? std::to_string(*config.host.numa_node) : "any";
  };

  add_tier(list, "disk", [](auto& c) -> auto& { return c.disk; });
  list.text("path", "File of the tier; its blocks are reused after a restart",
            [](auto& c) -> auto& { return c.disk.path; });
  list.choice("opening",
              "reuse: open the file or create it; existing: fail if there is no file; fresh: replace the file",
              Field([](auto& c) -> auto& { return c.disk.opening; }), kOpenings);
  list.flag("direct", "Direct I/O, bypassing the page cache", [](auto& c) -> auto& { return c.disk.direct; });
  list.choice("io", "How the file is read and written; best is io_uring if the system has it",
              Field([](auto& c) -> auto& { return c.disk.io; }), kMethods);
  list.whole("in_flight", "Most reads and writes in flight", Field([](auto& c) -> auto& { return c.disk.in_flight; }),
             1);
  list.size("scrub_rate",
            "Bytes per second that are read to find damaged blocks before they are needed; 0 to turn it off",
            [](auto& c) -> auto& { return c.disk.scrub_rate; });

  list.section("remote");
  list.text("url", "Store that others operate: redis://HOST:PORT, or rediss:// for TLS; empty for no such tier",
            [](auto& c) -> auto& { return c.remote.url; });
  list.whole("blocks", "Most blocks that are known to be in the store at once; others have to be found again",
             Field([](auto& c) -> auto& { return c.remote.blocks; }), 1, index_of(kNoBlock) - 1);
  list.choice("policy", "Which of them are forgotten first", Field([](auto& c) -> auto& { return c.remote.policy; }),
              names_of<PolicyKind>(kAllPolicies));
  list.text("user", "User of the store; empty for its default user", [](auto& c) -> auto& { return c.remote.user; });
  list.text("password", "Password of the store; empty if it asks for none",
            [](auto& c) -> auto& { return c.remote.password; });
  list.last().is_secret = true;
  list.text("password_file", "File that holds the password and nothing else",
            [](auto& c) -> auto& { return c.remote.password_file; });
  list.text("ca_file",
            "Certificates in PEM format that the store's certificate has to be signed by; empty for the "
            "system's",
            [](auto& c) -> auto& { return c.remote.ca_file; });
  list.optional_duration("time_to_live", "How long the store keeps a block; none for as long as it has room",
                         [](auto& c) -> auto& { return c.remote.time_to_live; });
  list.duration("timeout", "Longest time to connect, and between two signs of life of the store",
                [](auto& c) -> auto& { return c.remote.timeout; });
  list.whole("attempts", "How often a read or write is tried, within its deadline",
             Field([](auto& c) -> auto& { return c.remote.attempts; }), 1, 10);
  list.whole("connections", "Connections to each server", Field([](auto& c) -> auto& { return c.remote.connections; }),
             1, 64);
}

// `At` returns the options of one direction, as in add_tier().
template <typename At>
void add_offload(List& list, const std::string& section, At /*at*/) {
  list.section(section);
  list.choice(
      "mode",
      "When blocks are copied down. ahead: into free space, and before they are evicted; write-through: when they are "
      "registered; off: only on request",
      Field([](auto& c) -> auto& { return At()(c).mode; }), names_of<OffloadMode>(kAllOffloadModes));
  list.share(
      "low_water",
      "For ahead: share of the upper tier that is kept free or already copied; grows with large allocations",
      [](auto& c) -> auto& { return At()(c).low_water; }, 0.5);
  list.whole("batch", "Most blocks in one transfer", Field([](auto& c) -> auto& { return At()(c).batch; }), 1);
  list.whole("in_flight", "Most transfers in flight", Field([](auto& c) -> auto& { return At()(c).in_flight; }), 1);
  list.whole("queue",
             "Most blocks pending; beyond that the least valuable ones are not copied. 0: what the link copies within "
             "`deadline`, "
             "and at least the longest sequence",
             Field([](auto& c) -> auto& { return At()(c).queue; }));
  list.duration("deadline", "Deadline of a transfer", [](auto& c) -> auto& { return At()(c).deadline; });
  list.whole("least_uses", "Copy only blocks that were used at least this often",
             Field([](auto& c) -> auto& { return At()(c).least_uses; }), 0, ReuseHistory::kMaxUses);
  list.whole("least_blocks", "Copy only sequences of at least this many blocks",
             Field([](auto& c) -> auto& { return At()(c).least_blocks; }));
  list.whole("least_priority", "Copy only blocks of at least this priority",
             Field([](auto& c) -> auto& { return At()(c).least_priority; }), 0, Retention::kMaxPriority);
  list.share(
      "least_chance",
      "Copy only blocks with at least this chance of being read again before the lower tier evicts them",
      [](auto& c) -> auto& { return At()(c).least_chance; }, 0.99);
  list.size("bytes_per_day", "Most bytes written per day; 0 for no limit",
            [](auto& c) -> auto& { return At()(c).bytes_per_day; });
}

// "batch:100:500, trial:0:50": a name, blocks that are reserved for it, and the most that it may have (0: no limit).
std::optional<std::vector<TenantQuota>> parse_tenants(std::string_view text) {
  constexpr std::uint64_t kMost = std::numeric_limits<std::uint32_t>::max();
  std::vector<TenantQuota> tenants;
  while (!text.empty()) {
    const std::size_t comma = std::min(text.find(','), text.size());
    std::string_view one = text.substr(0, comma);
    text.remove_prefix(std::min(comma + 1, text.size()));
    one.remove_prefix(std::min(one.find_first_not_of(' '), one.size()));
    const std::size_t first = one.find(':');
    const std::size_t second = one.find(':', first == one.npos ? first : first + 1);
    if (first == 0 || second == one.npos || !is_plain_text(one)) {
      return std::nullopt;
    }
    const auto reserved = parse_whole(one.substr(first + 1, second - first - 1), 0, kMost);
    const auto limit = parse_whole(one.substr(second + 1), 0, kMost);
    if (!reserved || !limit) {
      return std::nullopt;
    }
    tenants.push_back({.name = std::string(one.substr(0, first)),
                       .reserved = static_cast<std::uint32_t>(*reserved),
                       .limit = *limit == 0 ? std::nullopt : std::optional(static_cast<std::uint32_t>(*limit))});
  }
  return tenants;
}

std::string print_tenants(const std::vector<TenantQuota>& tenants) {
  std::string text;
  for (const TenantQuota& tenant : tenants) {
    text += str_cat(text.empty() ? "" : ", ", tenant.name, ":", tenant.reserved, ":", tenant.limit.value_or(0));
  }
  return text;
}

void add_requests(List& list) {
  list.section("requests");
  list.whole("priority", "Priority of the blocks that requests save; the lowest is evicted first",
             Field([](auto& c) -> auto& { return c.requests.priority; }), 0, Retention::kMaxPriority);
  list.flag("retention", "Whether blocks may have a time to live, a priority for a time, and hints; 52 bytes a block",
            [](auto& c) -> auto& { return c.requests.retention; });
  list.optional_duration("time_to_live", "How long the unused blocks that requests saved are kept; needs retention",
                         [](auto& c) -> auto& { return c.requests.time_to_live; });
  list.add("tenants",
           "Quotas in blocks of the tier that saves go to, name:reserved:limit for each tenant; limit 0 for no limit",
           "a list such as batch:100:500, trial:0:50", Field([](auto& c) -> auto& { return c.requests.tenants; }),
           parse_tenants, print_tenants);
  list.last().is_text = true;
  list.whole("window_requests", "Requests in the sliding window of token counts",
             Field([](auto& c) -> auto& { return c.requests.window_requests; }), 1, 1000000);
  list.duration("window_time", "Length of the other sliding window of token counts",
                [](auto& c) -> auto& { return c.requests.window_time; });
}

void add_the_rest(List& list) {
  list.section("onboard");
  list.flag("through_host", "Blocks loaded from disk are also kept in host memory",
            [](auto& c) -> auto& { return c.onboard.through_host; });
  list.duration("deadline", "Deadline of a load that does not set one",
                [](auto& c) -> auto& { return c.onboard.deadline; });
  list.whole("loads", "Most loads in flight; further loads are refused",
             Field([](auto& c) -> auto& { return c.onboard.loads; }), 1);
  list.flag("weigh", "Load only what loads faster than the engine would compute it",
            [](auto& c) -> auto& { return c.onboard.weigh; });
  list.add(
      "prefill_tokens_per_second", "Speed of the engine's prefill; 0 to learn it from the engine's iterations",
      "a number, at least 0", Field([](auto& c) -> auto& { return c.onboard.prefill_tokens_per_second; }),
      [](std::string_view text) { return parse_real(text, 0, std::numeric_limits<double>::max()); }, print_real);
  list.size("host_to_device_bytes_per_second", "Speed of loads from host memory to the device; 0 to measure it",
            [](auto& c) -> auto& { return c.onboard.host_to_device_bytes_per_second; });
  list.size("disk_to_device_bytes_per_second", "Speed of loads from disk straight to the device; 0 to measure it",
            [](auto& c) -> auto& { return c.onboard.disk_to_device_bytes_per_second; });
  list.size("disk_to_host_bytes_per_second", "Speed of loads from disk to host memory; 0 to measure it",
            [](auto& c) -> auto& { return c.onboard.disk_to_host_bytes_per_second; });
  list.size("remote_to_host_bytes_per_second", "Speed of loads from the store to host memory; 0 to measure it",
            [](auto& c) -> auto& { return c.onboard.remote_to_host_bytes_per_second; });

  list.section("health");
  list.whole("failures", "Consecutive failures after which a tier is suspended",
             Field([](auto& c) -> auto& { return c.health.failures; }), 1);
  list.duration("first_wait", "Time until a suspended tier is tried again; doubles with each failed trial",
                [](auto& c) -> auto& { return c.health.first_wait; });
  list.duration("longest_wait", "Upper limit of that time", [](auto& c) -> auto& { return c.health.longest_wait; });

  list.section("events");
  list.text("publish",
            "Where routers subscribe to events, such as tcp://*:5557; dp_rank is added to ports. Empty: nowhere",
            [](auto& c) -> auto& { return c.events.publish; });
  list.text("replay", "Where they ask for what they missed, and for snapshots, such as tcp://*:5558; none if empty",
            [](auto& c) -> auto& { return c.events.replay; });
  list.text("topic", "Topic of the messages", [](auto& c) -> auto& { return c.events.topic; });
  list.choice("format", "vllm: batches as vLLM publishes them; dynamo: lines of JSON for routers of Dynamo",
              Field([](auto& c) -> auto& { return c.events.format; }), kFormats);
  list.choice("mode",
              "dedup: one event when a block is first cached anywhere, one when its last copy is gone; passthrough: "
              "events of every tier",
              Field([](auto& c) -> auto& { return c.events.mode; }), kModes);
  list.text("engine",
            "Where the engine publishes its events, such as tcp://localhost:5557, to merge them; none if empty",
            [](auto& c) -> auto& { return c.events.engine; });
  list.text("engine_replay", "The engine's replay endpoint; none if empty",
            [](auto& c) -> auto& { return c.events.engine_replay; });
  list.text("library", "Name or path of the library of ZeroMQ", [](auto& c) -> auto& { return c.events.library; });

  list.section("record");
  list.text("path",
            "File for the calls of the engine's scheduler, to be replayed by cairn replay --calls; none if empty",
            [](auto& c) -> auto& { return c.record.path; });
  list.flag("tokens", "Whether that file has token ids, salts and adapters; otherwise keys of blocks stand for them",
            [](auto& c) -> auto& { return c.record.tokens; });
}

std::vector<ConfigKey> make_keys() {
  List list;
  list.whole("worker_id", "Id of this process in events", Field([](auto& c) -> auto& { return c.worker_id; }));
  list.add(
      "dp_rank", "Data parallel rank of the engine, in events and metrics; none if the engine is not data parallel",
      "none, or a whole number", Field([](auto& c) -> auto& { return c.dp_rank; }),
      [](std::string_view text) -> std::optional<std::optional<std::uint32_t>> {
        const auto rank = parse_whole(text, 0, std::numeric_limits<std::uint32_t>::max());
        if (!rank && text != "none") {
          return std::nullopt;
        }
        return std::optional<std::optional<std::uint32_t>>(std::in_place, rank);
      },
      [](const std::optional<std::uint32_t>& rank) { return rank ? std::to_string(*rank) : std::string("none"); });
  list.whole("block_size", "Tokens in a block", Field([](auto& c) -> auto& { return c.block_size; }), 1);
  list.whole("event_log", "Events kept for subscribers that lag; 0 for no events",
             Field([](auto& c) -> auto& { return c.event_log; }));
  list.flag("event_token_ids", "Whether events carry the token ids of stored blocks; 4 bytes a token in memory",
            [](auto& c) -> auto& { return c.event_token_ids; });
  list.duration("shutdown", "How long a shutdown waits for copies in flight",
                [](auto& c) -> auto& { return c.shutdown; });
  add_model(list);
  add_tiers(list);
  add_offload(list, "offload.host", [](auto& c) -> auto& { return c.offload_to_host; });
  add_offload(list, "offload.disk", [](auto& c) -> auto& { return c.offload_to_disk; });
  add_offload(list, "offload.remote", [](auto& c) -> auto& { return c.offload_to_remote; });
  add_requests(list);
  add_the_rest(list);
  return std::move(list).take();
}

}  // namespace

std::string_view ConfigKey::section() const {
  const std::size_t dot = name.rfind('.');
  return dot == std::string::npos ? std::string_view() : std::string_view(name).substr(0, dot);
}

std::string_view ConfigKey::short_name() const {
  return section().empty() ? std::string_view(name) : std::string_view(name).substr(section().size() + 1);
}

std::string ConfigKey::variable() const {
  std::string variable = "CAIRN_";
  for (const char c : name) {
    variable += c == '.' ? '_' : c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  }
  return variable;
}

bool ConfigKey::is_bare(std::string_view value) const {
  if (is_text) {
    return false;
  }
  // TOML integers are signed.
  constexpr std::uint64_t kMost = std::numeric_limits<std::int64_t>::max();
  const bool is_number = value.find_first_not_of("0123456789") == std::string_view::npos
                             ? parse_whole(value, 0, kMost).has_value()
                             : parse_real(value, 0, std::numeric_limits<double>::max()).has_value();
  return is_number || value == "true" || value == "false";
}

std::span<const ConfigKey> config_keys() {
  static const std::vector<ConfigKey> kKeys = make_keys();
  return kKeys;
}

const ConfigKey* find_key(std::string_view name) {
  const std::span<const ConfigKey> keys = config_keys();
  const auto found = std::ranges::find(keys, name, &ConfigKey::name);
  return found == keys.end() ? nullptr : &*found;
}

Status set_key(ManagerConfig& config, const ConfigKey& key, std::string_view value) {
  if (!key.parse(config, value)) {
    return fail(ErrorCode::kInvalidArgument,
                key.is_secret ? str_cat(key.name, " is a text of ", value.size(), " characters; expected ", key.values)
                              : str_cat(key.name, " is '", value, "'; expected ", key.values));
  }
  return {};
}

std::string suggestion(std::string_view name, const std::vector<std::string>& candidates) {
  constexpr std::size_t kLongest = 64;  // longer than any key; limits the work
  const std::string* nearest = nullptr;
  std::size_t distance = std::max<std::size_t>(2, name.size() / 3) + 1;
  for (const std::string& candidate : candidates) {
    const std::size_t here = name.size() > kLongest ? name.size() : edit_distance(name, candidate);
    if (here < distance) {
      distance = here;
      nearest = &candidate;
    }
  }
  return nearest == nullptr ? "; run `cairn config` to list all keys" : str_cat("; did you mean ", *nearest, "?");
}

Unexpected<Error> unknown_key(std::string_view name) {
  std::vector<std::string> names;
  for (const ConfigKey& key : config_keys()) {
    names.push_back(key.name);
  }
  return fail(ErrorCode::kInvalidArgument, str_cat("unknown key ", name, suggestion(name, names)));
}

std::optional<std::uint32_t> element_bits(std::string_view element_type) {
  const auto* const found = std::ranges::find(kElementTypes, element_type, &ElementType::name);
  return found == std::end(kElementTypes) ? std::nullopt : std::optional(found->bits);
}

}  // namespace cairn
