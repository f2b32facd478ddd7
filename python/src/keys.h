// Keys and tokens as Python objects, and how arguments become spans of them: what all bindings share.
//
// An argument refers to the memory of a Python object where it can. It is valid during the call that it was passed to, also
// without the GIL: the object cannot go away, and numpy refuses to resize an array that a buffer refers to.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "cairn/tokens/block_key.h"
#include "cairn/tokens/hashes.h"
#include "cairn/tokens/key_hasher.h"
#include "cairn/tokens/token_sequence.h"
#include "python/src/binding.h"

namespace cairn::python {

void bind_keys(nb::module_& module);     // Key, Keys, KeyHasher, hash_tokens()
void bind_engines(nb::module_& module);  // the key schemes of vLLM, SGLang and routers
void bind_tokens(nb::module_& module);   // MmRun, TokenSequence

// cairn.Keys: keys that never change, so that a call without the GIL can read them.
class Keys {
 public:
  explicit Keys(std::vector<BlockKey> keys) : keys_(std::move(keys)) {}
  [[nodiscard]] std::span<const BlockKey> get() const { return keys_; }

 private:
  std::vector<BlockKey> keys_;
};
[[nodiscard]] inline Keys copy_of(std::span<const BlockKey> keys) {
  return Keys(std::vector<BlockKey>(keys.begin(), keys.end()));
}

// An argument that is cairn.Keys, or any sequence of cairn.Key.
class KeysArgument {
 public:
  KeysArgument() = default;
  explicit KeysArgument(std::span<const BlockKey> keys) : keys_(keys) {}
  explicit KeysArgument(std::vector<BlockKey> keys) : copied_(std::move(keys)), keys_(copied_) {}
  KeysArgument(KeysArgument&&) noexcept = default;
  KeysArgument& operator=(KeysArgument&&) noexcept = default;

  [[nodiscard]] std::span<const BlockKey> get() const { return keys_; }
  [[nodiscard]] std::size_t size() const { return keys_.size(); }

 private:
  std::vector<BlockKey> copied_;
  std::span<const BlockKey> keys_;
};

// An argument of token ids: an array or a buffer of uint32, which is not copied; of another type of integer; or a sequence
// of int. get() raises for anything else; call it with the GIL.
class TokensArgument {
 public:
  TokensArgument() = default;
  explicit TokensArgument(nb::handle object) : object_(object) {}
  TokensArgument(TokensArgument&&) noexcept = default;
  TokensArgument& operator=(TokensArgument&&) noexcept = default;

  // Valid as long as this argument.
  [[nodiscard]] std::span<const Token> get();

 private:
  nb::handle object_;
  nb::ndarray<nb::ro, nb::device::cpu> array_;
  std::vector<Token> copied_;
};
// From this many tokens on, hashing takes long enough to release the GIL.
inline constexpr std::size_t kManyTokens = 2048;

// cairn.TokenSequence. A call on one that another thread is hashing without the GIL raises.
class TokenSequence {
 public:
  explicit TokenSequence(TokenBlockSequence sequence) : sequence_(std::move(sequence)) {}

  // Requires: the GIL. Raises if another thread is changing the sequence.
  [[nodiscard]] TokenBlockSequence& get() {
    if (changing_) {
      raise(ErrorCode::kFailedPrecondition, "another thread is changing this sequence; use it in one thread at a time");
    }
    return sequence_;
  }
  // Calls `change` with the sequence, without the GIL if it takes long.
  template <typename Change>
  auto change(bool takes_long, Change change);

 private:
  TokenBlockSequence sequence_;
  bool changing_ = false;
};

template <typename Change>
auto TokenSequence::change(bool takes_long, Change change) {
  TokenBlockSequence& sequence = get();
  if (!takes_long) {
    return change(sequence);
  }
  changing_ = true;
  auto outcome = [&] {
    const GilRelease released;
    return change(sequence);
  }();
  changing_ = false;
  return outcome;
}

// A numpy array that owns its elements, of shape (n,).
template <typename T>
using Array = nb::ndarray<nb::numpy, T, nb::ndim<1>>;
template <typename T>
Array<T> make_array(std::vector<T> values) {
  auto owned = std::make_unique<std::vector<T>>(std::move(values));
  std::vector<T>* memory = owned.get();
  nb::capsule owner(owned.release(), [](void* pointer) noexcept { delete static_cast<std::vector<T>*>(pointer); });
  return Array<T>(memory->data(), {memory->size()}, owner);
}

}  // namespace cairn::python

namespace nanobind::detail {

template <>
struct type_caster<cairn::python::KeysArgument> {
  NB_TYPE_CASTER(cairn::python::KeysArgument, make_caster<cairn::python::Keys>::Name +
                                                  const_name(" | collections.abc.Sequence[") +
                                                  make_caster<cairn::BlockKey>::Name + const_name("]"))

  bool from_python(handle source, std::uint32_t flags, cleanup_list* cleanup) noexcept;
};

template <>
struct type_caster<cairn::python::TokensArgument> {
  NB_TYPE_CASTER(cairn::python::TokensArgument, const_name("collections.abc.Sequence[int] | typing_extensions.Buffer | "
                                                           "numpy.typing.NDArray[typing.Any]"))

  bool from_python(handle source, std::uint32_t /*flags*/, cleanup_list* /*cleanup*/) noexcept {
    value = cairn::python::TokensArgument(source);
    return true;
  }
};

}  // namespace nanobind::detail
