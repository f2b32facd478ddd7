// cairn.Key, cairn.Keys, cairn.KeyHasher and cairn.hash_tokens().
#include "python/src/keys.h"

#include <nanobind/make_iterator.h>
#include <nanobind/operators.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>

#include "cairn/base/str_cat.h"

namespace cairn::python {
namespace {

static_assert(std::is_standard_layout_v<BlockKey> && sizeof(BlockKey) == 2 * sizeof(std::uint64_t));
constexpr std::size_t kKeyBytes = 16;

nb::bytes bytes_of(std::span<const std::byte> bytes) { return nb::bytes(bytes.data(), bytes.size()); }

std::span<const std::byte> span_of(const nb::bytes& bytes) {
  return {reinterpret_cast<const std::byte*>(bytes.c_str()), bytes.size()};
}

std::string hex_of(std::span<const std::byte> bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const std::byte byte : bytes) {
    text += kDigits[std::to_integer<unsigned>(byte) >> 4U];
    text += kDigits[std::to_integer<unsigned>(byte) & 15U];
  }
  return text;
}

nb::object int_of(const BlockKey& key) {
  const nb::object high = nb::steal(PyNumber_Lshift(nb::int_(key.high_word()).ptr(), nb::int_(64).ptr()));
  return nb::steal(PyNumber_Or(high.ptr(), nb::int_(key.low_word()).ptr()));
}

// The bytes of keys one after the other, each as it is sent and stored.
nb::bytes bytes_of(std::span<const BlockKey> keys) {
  std::vector<std::byte> bytes;
  bytes.reserve(keys.size() * kKeyBytes);
  for (const BlockKey& key : keys) {
    const auto one = key.to_bytes();
    bytes.insert(bytes.end(), one.begin(), one.end());
  }
  return bytes_of(bytes);
}

Keys keys_from(std::span<const std::byte> bytes) {
  if (bytes.size() % kKeyBytes != 0) {
    raise(ErrorCode::kCorrupt, str_cat(bytes.size(), " bytes are not a whole number of keys; a key has 16 bytes"));
  }
  std::vector<BlockKey> keys;
  keys.reserve(bytes.size() / kKeyBytes);
  for (std::size_t at = 0; at < bytes.size(); at += kKeyBytes) {
    keys.push_back(value_or_raise(BlockKey::from_bytes(bytes.subspan(at, kKeyBytes))));
  }
  return Keys(std::move(keys));
}

using KeyWords = nb::ndarray<const std::uint64_t, nb::shape<-1, 2>, nb::c_contig, nb::device::cpu>;

Keys keys_from_words(const KeyWords& words) {
  std::vector<std::byte> bytes(words.shape(0) * kKeyBytes);
  for (std::size_t i = 0; i < 2 * words.shape(0); ++i) {
    for (std::size_t byte = 0; byte < 8; ++byte) {
      bytes[8 * i + byte] = static_cast<std::byte>(words.data()[i] >> (56 - 8 * byte));
    }
  }
  return keys_from(bytes);
}

const BlockKey& key_at(std::span<const BlockKey> keys, std::int64_t index) {
  const auto size = static_cast<std::int64_t>(keys.size());
  if (index < -size || index >= size) {
    throw nb::index_error("key index is out of range");
  }
  return keys[static_cast<std::size_t>(index < 0 ? index + size : index)];
}

Keys slice_of(std::span<const BlockKey> keys, const nb::slice& slice) {
  const auto [start, stop, step, count] = slice.compute(keys.size());
  std::vector<BlockKey> chosen;
  chosen.reserve(count);
  for (std::size_t i = 0; i < count; ++i) {
    chosen.push_back(keys[static_cast<std::size_t>(start + static_cast<Py_ssize_t>(i) * step)]);
  }
  return Keys(std::move(chosen));
}

std::string repr_of(std::span<const BlockKey> keys) {
  if (keys.empty()) {
    return "<cairn.Keys: 0 keys>";
  }
  return str_cat("<cairn.Keys: ", keys.size(), keys.size() == 1 ? " key, " : " keys, the first ", keys[0].to_string(),
                 ">");
}

std::optional<KeySecret> secret_of(const std::variant<std::monostate, nb::bytes, std::string>& given) {
  if (const auto* hex = std::get_if<std::string>(&given)) {
    return value_or_raise(KeySecret::from_hex(*hex));
  }
  const auto* bytes = std::get_if<nb::bytes>(&given);
  if (bytes == nullptr) {
    return std::nullopt;
  }
  if (bytes->size() != KeySecret::kBytes) {
    raise(ErrorCode::kInvalidArgument, str_cat("the secret has ", bytes->size(), " bytes; give 32"));
  }
  KeySecret::Bytes copied{};
  std::memcpy(copied.data(), bytes->c_str(), copied.size());
  return KeySecret(copied);
}

KeyScheme scheme_of(std::string_view name) {
  for (const KeyScheme scheme : kAllSchemes) {
    if (name == to_string(scheme)) {
      return scheme;
    }
  }
  raise(ErrorCode::kInvalidArgument,
        str_cat("unknown key scheme '", name, "' (expected native, dynamo, vllm, sglang or router)"));
}

[[noreturn]] void raise_bad_token(std::size_t index) {
  raise(ErrorCode::kInvalidArgument, str_cat("token ", index, " is not a token id; give 0 to 4294967295"));
}

std::vector<Token> tokens_of_sequence(nb::handle object) {
  const Py_ssize_t size =
      PySequence_Check(object.ptr()) != 0 && !PyUnicode_Check(object.ptr()) ? PySequence_Size(object.ptr()) : -1;
  if (size < 0) {
    PyErr_Clear();
    throw nb::type_error("tokens: expected an array of integers, or a sequence of int");
  }
  std::vector<Token> tokens;
  tokens.reserve(static_cast<std::size_t>(size));
  for (Py_ssize_t i = 0; i < size; ++i) {
    const nb::object item = nb::steal(PySequence_GetItem(object.ptr(), i));
    const nb::object number = item.is_valid() ? nb::steal(PyNumber_Index(item.ptr())) : nb::object();
    if (!number.is_valid()) {
      throw nb::python_error();  // of the sequence, or a TypeError that names the type
    }
    const unsigned long long token = PyLong_AsUnsignedLongLong(number.ptr());
    if (PyErr_Occurred() != nullptr || token > std::numeric_limits<Token>::max()) {
      PyErr_Clear();
      raise_bad_token(static_cast<std::size_t>(i));
    }
    tokens.push_back(static_cast<Token>(token));
  }
  return tokens;
}

template <typename Integer>
std::vector<Token> tokens_of_array(const nb::ndarray<nb::ro, nb::device::cpu>& array) {
  const auto* values = static_cast<const Integer*>(array.data());
  std::vector<Token> tokens(array.shape(0));
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const Integer value = values[static_cast<std::int64_t>(i) * array.stride(0)];
    if (!std::in_range<Token>(value)) {
      raise_bad_token(i);
    }
    tokens[i] = static_cast<Token>(value);
  }
  return tokens;
}

Keys hash_tokens(TokensArgument tokens_argument, std::uint32_t block_size, const KeyHasher* hasher,
                 const BlockKey* parent, const std::vector<MmRun>& mm_runs) {
  const std::span<const Token> tokens = tokens_argument.get();
  std::vector<BlockKey> keys(block_size == 0 ? 0 : tokens.size() / block_size);
  const KeyHasher& used = hasher == nullptr ? KeyHasher::of_process() : *hasher;
  const std::optional<BlockKey> before = parent == nullptr ? std::nullopt : std::optional(*parent);
  const Result<std::size_t> count = [&] {
    const ReleaseGilIf gil(tokens.size() >= kManyTokens);
    return hash_blocks(tokens, block_size, used, before, keys, {}, mm_runs);
  }();
  if (!count) {
    raise(count.error());
  }
  return Keys(std::move(keys));
}

void bind_key(nb::module_& module) {
  nb::class_<BlockKey>(module, "Key", R"(The key of a block: 128 bits that name its tokens and all tokens before them.

Keys can be compared, sorted (parents before children), hashed and pickled.)")
      .def_static(
          "parse", [](std::string_view text) { return value_or_raise(BlockKey::parse(text)); }, nb::arg("text"),
          "Read the text that `str(key)` wrote.")
      .def_static(
          "frombytes", [](const nb::bytes& bytes) { return value_or_raise(BlockKey::from_bytes(span_of(bytes))); },
          nb::arg("data"), "Read the 16 bytes that `tobytes` wrote, the most significant byte first.")
      .def(
          "tobytes", [](const BlockKey& key) { return bytes_of(key.to_bytes()); },
          "The 16 bytes of the key as it is sent and stored, the most significant byte first.")
      .def(
          "hex", [](const BlockKey& key) { return hex_of(key.to_bytes()); }, "The bytes as 32 hexadecimal digits.")
      .def_prop_ro("position", &BlockKey::position, "The index of the block in its sequence.")
      .def_prop_ro(
          "sequence_hash", [](const BlockKey& key) { return value_of(key.sequence_hash()); },
          "64 bits of hash over all tokens up to the end of the block.")
      .def_prop_ro("parent_fragment", &BlockKey::parent_fragment,
                   "The low bits of the parent's sequence hash, as many as the key holds; 0 at position 0.")
      .def("is_parent_of", &BlockKey::is_parent_of, nb::arg("child"),
           "Whether this can be the key of the block before `child`.")
      .def("__int__", &int_of, nb::sig("def __int__(self) -> int"))
      .def("__str__", &BlockKey::to_string)
      .def("__repr__", [](const BlockKey& key) { return str_cat("<cairn.Key ", key.to_string(), ">"); })
      .def("__hash__", [](const BlockKey& key) { return std::hash<BlockKey>()(key); })
      .def(nb::self == nb::self, nb::sig("def __eq__(self, arg: object, /) -> bool"))
      .def(nb::self != nb::self, nb::sig("def __ne__(self, arg: object, /) -> bool"))
      .def(nb::self < nb::self)
      .def(nb::self <= nb::self)
      .def(nb::self > nb::self)
      .def(nb::self >= nb::self)
      .def("__getstate__", [](const BlockKey& key) { return bytes_of(key.to_bytes()); })
      .def("__setstate__", [](BlockKey& key, const nb::bytes& bytes) {
        new (&key) BlockKey(value_or_raise(BlockKey::from_bytes(span_of(bytes))));
      });
}

void bind_key_array(nb::module_& module) {
  nb::class_<Keys>(module, "Keys", R"(An array of keys that never changes.

It behaves as a sequence of `Key`, and is passed to Cairn without a copy. `to_numpy()` shows it as an array.)")
      .def(
          "__init__", [](Keys* self, const KeysArgument& keys) { new (self) Keys(copy_of(keys.get())); },
          nb::arg("keys"))
      .def_static(
          "frombytes", [](const nb::bytes& bytes) { return keys_from(span_of(bytes)); }, nb::arg("data"),
          "Read the bytes that `tobytes` wrote: 16 for each key.")
      .def_static("from_numpy", &keys_from_words, nb::arg("words"),
                  "Read an array as `to_numpy` shows it: shape (n, 2), uint64, the high word first.")
      .def(
          "tobytes", [](const Keys& keys) { return bytes_of(keys.get()); },
          "The bytes of all keys, 16 for each, as they are sent and stored.")
      .def(
          "to_numpy",
          [](nb::object self) {
            const std::span<const BlockKey> keys = nb::inst_ptr<Keys>(self)->get();
            return nb::ndarray<nb::numpy, const std::uint64_t, nb::shape<-1, 2>>(
                reinterpret_cast<const std::uint64_t*>(keys.data()), {keys.size(), 2}, self);
          },
          nb::sig("def to_numpy(self) -> numpy.typing.NDArray[numpy.uint64]"),
          "A read-only view of the keys, without a copy: shape (n, 2), the high word first.")
      .def("__len__", [](const Keys& keys) { return keys.get().size(); })
      .def("__getitem__", [](const Keys& keys, std::int64_t index) { return key_at(keys.get(), index); })
      .def("__getitem__", [](const Keys& keys, const nb::slice& slice) { return slice_of(keys.get(), slice); })
      .def(
          "__iter__",
          [](const Keys& keys) {
            return nb::make_iterator<nb::rv_policy::copy>(nb::type<Keys>(), "_KeyIterator", keys.get().begin(),
                                                          keys.get().end());
          },
          nb::keep_alive<0, 1>())
      .def("__contains__",
           [](const Keys& keys, const BlockKey& key) { return std::ranges::count(keys.get(), key) > 0; })
      .def(
          "__eq__", [](const Keys& one, const Keys& other) { return std::ranges::equal(one.get(), other.get()); },
          nb::is_operator(), nb::sig("def __eq__(self, arg: object, /) -> bool"))
      .def("__hash__",
           [](const Keys& keys) {
             std::uint64_t hash = keys.get().size();
             for (const BlockKey& key : keys.get()) {
               hash = KeySeed::of_process().mix(hash, std::hash<BlockKey>()(key));
             }
             return hash;
           })
      .def(
          "__add__",
          [](const Keys& one, const KeysArgument& other) {
            std::vector<BlockKey> all(one.get().begin(), one.get().end());
            all.insert(all.end(), other.get().begin(), other.get().end());
            return Keys(std::move(all));
          },
          nb::is_operator())
      .def("__repr__", [](const Keys& keys) { return repr_of(keys.get()); })
      .def("__getstate__", [](const Keys& keys) { return bytes_of(keys.get()); })
      .def("__setstate__", [](Keys& keys, const nb::bytes& bytes) { new (&keys) Keys(keys_from(span_of(bytes))); });
}

void bind_hasher(nb::module_& module) {
  nb::class_<KeyHasher>(module, "KeyHasher", R"(Makes the keys of a request's blocks.

`scheme` is native (a keyed hash of the tokens), dynamo (XXH3, without a secret), vllm, sglang (from the engine's digests)
or router. Keys of the first, vllm and sglang need a `secret`: 32 bytes, or 64 hexadecimal digits. If none is given, it is
random, and no other process finds the blocks. The keyword arguments name the namespace: blocks of one are not found in
another. A manager's `hasher` has the manager's scheme, secret and namespace.)")
      .def(
          "__init__",
          [](KeyHasher* self, std::string_view scheme,
             const std::variant<std::monostate, nb::bytes, std::string>& secret, const std::string& tenant,
             const std::string& model, std::uint64_t weights_generation, const std::string& layout,
             const std::string& element_type, const std::string& shard, std::uint32_t block_size, std::string_view salt,
             std::string_view lora) {
            const Namespace space{.tenant = tenant,
                                  .model = model,
                                  .weights_generation = weights_generation,
                                  .layout = layout,
                                  .element_type = element_type,
                                  .shard = shard,
                                  .block_size = block_size,
                                  .scheme = scheme_of(scheme)};
            new (self) KeyHasher(KeyHasher::make(space, secret_of(secret)).with({.salt = salt, .lora_name = lora}));
          },
          nb::arg("scheme") = "native", nb::arg("secret") = nb::none(), nb::kw_only(), nb::arg("tenant") = "",
          nb::arg("model") = "", nb::arg("weights_generation") = 0, nb::arg("layout") = "",
          nb::arg("element_type") = "", nb::arg("shard") = "", nb::arg("block_size") = 0, nb::arg("salt") = "",
          nb::arg("lora") = "")
      .def_static(
          "of_process", [] { return KeyHasher::of_process(); },
          "Scheme native with a random secret that lasts until the process ends.")
      .def(
          "with_",
          [](const KeyHasher& hasher, std::string_view salt, std::string_view lora) {
            return hasher.with({.salt = salt, .lora_name = lora});
          },
          nb::kw_only(), nb::arg("salt") = "", nb::arg("lora") = "",
          "The same hasher with this salt and adapter instead of its own.")
      .def_prop_ro(
          "scheme", [](const KeyHasher& hasher) { return to_string(hasher.scheme()); }, "The key scheme.")
      .def("__repr__", [](const KeyHasher& hasher) {
        return str_cat("<cairn.KeyHasher ", to_string(hasher.scheme()), ">");  // never the secret
      });
}

}  // namespace

std::span<const Token> TokensArgument::get() {
  if (!nb::ndarray_check(object_)) {
    copied_ = tokens_of_sequence(object_);
    return copied_;
  }
  if (!nb::try_cast(object_, array_, false) || array_.ndim() != 1) {
    throw nb::type_error("tokens: expected an array in host memory with one dimension");
  }
  const auto dtype = array_.dtype();
  if (dtype == nb::dtype<std::uint32_t>()) {
    if (array_.stride(0) == 1 || array_.shape(0) < 2) {
      return {static_cast<const Token*>(array_.data()), array_.shape(0)};
    }
    copied_ = tokens_of_array<std::uint32_t>(array_);
  } else if (dtype == nb::dtype<std::int32_t>()) {
    copied_ = tokens_of_array<std::int32_t>(array_);
  } else if (dtype == nb::dtype<std::int64_t>()) {
    copied_ = tokens_of_array<std::int64_t>(array_);
  } else if (dtype == nb::dtype<std::uint64_t>()) {
    copied_ = tokens_of_array<std::uint64_t>(array_);
  } else {
    throw nb::type_error("tokens: expected an array of uint32, which is not copied, or of int32, int64 or uint64");
  }
  return copied_;
}

void bind_keys(nb::module_& module) {
  bind_key(module);
  bind_key_array(module);
  bind_hasher(module);
  module.def("hash_tokens", &hash_tokens, nb::arg("tokens"), nb::arg("block_size"), nb::arg("hasher") = nb::none(),
             nb::arg("parent") = nb::none(), nb::arg("mm_runs") = nb::make_tuple(),
             R"(The keys of the full blocks of `tokens`; tokens after the last full block are ignored.

The blocks follow `parent`, or begin a sequence. Without a hasher, keys are those of `KeyHasher.of_process()`: of no use to
another process. An array of uint32 is not copied; do not change it meanwhile.)");
}

}  // namespace cairn::python

namespace nanobind::detail {

bool type_caster<cairn::python::KeysArgument>::from_python(handle source, std::uint32_t /*flags*/,
                                                           cleanup_list* /*cleanup*/) noexcept {
  using cairn::python::Keys;
  using cairn::python::KeysArgument;
  if (isinstance<Keys>(source)) {
    value = KeysArgument(inst_ptr<Keys>(source)->get());
    return true;
  }
  const Py_ssize_t size = PySequence_Check(source.ptr()) != 0 ? PySequence_Size(source.ptr()) : -1;
  if (size < 0) {
    PyErr_Clear();
    return false;
  }
  std::vector<cairn::BlockKey> keys;
  keys.reserve(static_cast<std::size_t>(size));
  for (Py_ssize_t i = 0; i < size; ++i) {
    const object item = steal(PySequence_GetItem(source.ptr(), i));
    if (!item.is_valid() || !isinstance<cairn::BlockKey>(item)) {
      PyErr_Clear();
      return false;
    }
    keys.push_back(*inst_ptr<cairn::BlockKey>(item));
  }
  value = KeysArgument(std::move(keys));
  return true;
}

}  // namespace nanobind::detail
