// cairn.MmRun and cairn.TokenSequence.
#include <nanobind/operators.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <string>
#include <tuple>

#include "cairn/base/str_cat.h"
#include "python/src/keys.h"

namespace cairn::python {
namespace {

Array<Token> array_of(std::span<const Token> tokens) {
  return make_array(std::vector<Token>(tokens.begin(), tokens.end()));
}

void bind_mm_run(nb::module_& module) {
  nb::class_<MmRun>(module, "MmRun", R"(The placeholder tokens of one multimodal item (an image, a clip) in a sequence.

The ids of these tokens are ignored: keys are made of the item's hash and the index in the item instead.)")
      .def(
          "__init__",
          [](MmRun* self, std::uint64_t offset, std::uint32_t length, std::uint64_t mm_hash,
             std::uint32_t item_offset) {
            new (self) MmRun{.offset = offset, .length = length, .mm_hash = mm_hash, .item_offset = item_offset};
          },
          nb::arg("offset"), nb::arg("length"), nb::arg("mm_hash"), nb::arg("item_offset") = 0)
      .def_ro("offset", &MmRun::offset, "Index of the first placeholder in the sequence.")
      .def_ro("length", &MmRun::length, "Number of placeholders.")
      .def_ro("mm_hash", &MmRun::mm_hash, "Hash of the item.")
      .def_ro("item_offset", &MmRun::item_offset, "How many placeholders of the same item come before this run.")
      .def(nb::self == nb::self, nb::sig("def __eq__(self, arg: object, /) -> bool"))
      .def("__repr__", [](const MmRun& run) {
        return str_cat("cairn.MmRun(offset=", run.offset, ", length=", run.length, ", mm_hash=", run.mm_hash,
                       ", item_offset=", run.item_offset, ")");
      });
}

TokenSequence make_sequence(TokensArgument argument, std::uint32_t block_size, const KeyHasher* hasher,
                            const std::vector<MmRun>& mm_runs, bool adopting) {
  const std::span<const Token> tokens = argument.get();
  const KeyHasher& used = hasher == nullptr ? KeyHasher::of_process() : *hasher;
  if (adopting && !mm_runs.empty()) {
    raise(ErrorCode::kInvalidArgument, "multimodal runs in a sequence whose keys are given; its keys cover them");
  }
  Result<TokenBlockSequence> made = [&] {
    const ReleaseGilIf gil(tokens.size() >= kManyTokens);
    return adopting ? TokenBlockSequence::create_adopting(tokens, block_size, used)
                    : TokenBlockSequence::create(tokens, block_size, used, mm_runs);
  }();
  return TokenSequence(value_or_raise(std::move(made)));
}

// Fails on a sequence that is being hashed, like every call.
template <typename Read>
auto reading(Read read) {
  return [read](TokenSequence& sequence) { return read(std::as_const(sequence.get())); };
}

}  // namespace

void bind_tokens(nb::module_& module) {
  bind_mm_run(module);
  nb::class_<TokenSequence>(module, "TokenSequence",
                            R"(The tokens of a request in blocks, with the keys of the full blocks.

The keys depend on the tokens alone, not on how they were added and removed. With `adopting=True` the engine gives the keys
of full blocks (schemes vllm, sglang, router) through `adopt`. Use a sequence in one thread at a time.)")
      .def(
          "__init__",
          [](TokenSequence* self, TokensArgument tokens, std::uint32_t block_size, const KeyHasher* hasher,
             const std::vector<MmRun>& mm_runs, bool adopting) {
            new (self) TokenSequence(make_sequence(std::move(tokens), block_size, hasher, mm_runs, adopting));
          },
          nb::arg("tokens"), nb::arg("block_size"), nb::arg("hasher") = nb::none(), nb::kw_only(),
          nb::arg("mm_runs") = nb::make_tuple(), nb::arg("adopting") = false)
      .def(
          "append", [](TokenSequence& sequence, Token token) { return value_or_raise(sequence.get().append(token)); },
          nb::arg("token"), "Add a token. Returns the index of the block that it completed, or None.")
      .def(
          "extend",
          [](TokenSequence& sequence, TokensArgument argument, const std::vector<MmRun>& mm_runs) {
            const std::span<const Token> tokens = argument.get();
            // A copy: the tokens may be a view of memory that another thread changes while they are hashed.
            const BlockRange added =
                value_or_raise(sequence.change(tokens.size() >= kManyTokens, [&](TokenBlockSequence& changed) {
                  return changed.extend(tokens, mm_runs);
                }));
            return std::tuple(added.begin, added.end);
          },
          nb::arg("tokens"), nb::kw_only(), nb::arg("mm_runs") = nb::make_tuple(),
          "Add tokens. Returns (begin, end) of the blocks that they completed.")
      .def(
          "truncate", [](TokenSequence& sequence, std::size_t length) { check(sequence.get().truncate(length)); },
          nb::arg("length"), "Keep the first `length` tokens.")
      .def(
          "unwind", [](TokenSequence& sequence, std::size_t count) { check(sequence.get().unwind(count)); },
          nb::arg("count"), "Remove the last `count` tokens.")
      .def(
          "pop", [](TokenSequence& sequence) { return sequence.get().pop(); },
          "Remove the last token and return it; None if there is none.")
      .def(
          "reset", [](TokenSequence& sequence) { sequence.get().reset(); },
          "Remove all tokens; the block size and the hasher stay.")
      .def(
          "split",
          [](TokenSequence& sequence, std::size_t length) {
            TokenBlockSequence::Split split = value_or_raise(sequence.get().split_at(length));
            return std::tuple(TokenSequence(std::move(split.prefix)), make_array(std::move(split.rest)),
                              std::move(split.rest_runs));
          },
          nb::arg("length"),
          "(prefix, rest, rest_runs): `prefix.extend(rest, mm_runs=rest_runs)` gives the whole sequence again.")
      .def(
          "adopt", [](TokenSequence& sequence, const KeysArgument& keys) { check(sequence.get().adopt(keys.get())); },
          nb::arg("keys"), "Name the next full blocks, in a sequence whose keys are given.")
      .def_prop_ro("block_size", reading([](const TokenBlockSequence& sequence) { return sequence.block_size(); }),
                   "Tokens in a block.")
      .def_prop_ro("hasher", reading([](const TokenBlockSequence& sequence) { return sequence.hasher(); }),
                   "What makes the keys.")
      .def_prop_ro("tokens", reading([](const TokenBlockSequence& sequence) { return array_of(sequence.tokens()); }),
                   nb::rv_policy::move, "A copy of the tokens, as a numpy array.")
      .def_prop_ro("tail", reading([](const TokenBlockSequence& sequence) { return array_of(sequence.tail()); }),
                   nb::rv_policy::move, "A copy of the tokens after the last full block.")
      .def_prop_ro("mm_runs", reading([](const TokenBlockSequence& sequence) {
                     return std::vector<MmRun>(sequence.mm_runs().begin(), sequence.mm_runs().end());
                   }),
                   "The multimodal runs, sorted.")
      .def_prop_ro("keys", reading([](const TokenBlockSequence& sequence) { return copy_of(sequence.keys()); }),
                   "The keys of the full blocks.")
      .def_prop_ro("block_hashes", reading([](const TokenBlockSequence& sequence) {
                     std::vector<std::uint64_t> hashes(sequence.block_hashes().size());
                     std::ranges::transform(sequence.block_hashes(), hashes.begin(),
                                            [](BlockHash hash) { return value_of(hash); });
                     return make_array(std::move(hashes));
                   }),
                   nb::rv_policy::move, "The hashes of each full block's tokens alone, for events.")
      .def_prop_ro("block_count", reading([](const TokenBlockSequence& sequence) { return sequence.block_count(); }),
                   "Number of full blocks that have keys.")
      .def("__len__", reading([](const TokenBlockSequence& sequence) { return sequence.size(); }))
      .def("__repr__", reading([](const TokenBlockSequence& sequence) {
             return str_cat("<cairn.TokenSequence: ", sequence.size(), " tokens, ", sequence.block_count(),
                            " full blocks of ", sequence.block_size(), ">");
           }));
}

}  // namespace cairn::python
