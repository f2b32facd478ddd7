// The key schemes of engines: digests of vLLM and SGLang, hashes of routers, and keys from them.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <string_view>
#include <tuple>

#include "cairn/base/str_cat.h"
#include "cairn/tokens/engine_key.h"
#include "python/src/keys.h"

namespace cairn::python {
namespace {

using MmItem = std::tuple<std::string, std::int64_t, std::uint32_t>;

nb::bytes bytes_of(const Digest& digest) { return nb::bytes(digest.bytes.data(), digest.bytes.size()); }

std::span<const std::byte> span_of(const nb::bytes& bytes) {
  return {reinterpret_cast<const std::byte*>(bytes.c_str()), bytes.size()};
}

Digest digest_of(const nb::bytes& bytes) {
  Digest digest;
  if (bytes.size() != digest.bytes.size()) {
    raise(ErrorCode::kInvalidArgument, str_cat("a digest of ", bytes.size(), " bytes; a SHA-256 has 32"));
  }
  std::memcpy(digest.bytes.data(), bytes.c_str(), digest.bytes.size());
  return digest;
}

std::vector<nb::bytes> bytes_of(std::span<const Digest> digests) {
  std::vector<nb::bytes> all;
  all.reserve(digests.size());
  for (const Digest& digest : digests) {
    all.push_back(bytes_of(digest));
  }
  return all;
}

std::size_t blocks_in(std::span<const Token> tokens, std::uint32_t block_size) {
  return block_size == 0 ? 0 : tokens.size() / block_size;
}

std::vector<nb::bytes> vllm_digests(TokensArgument argument, std::uint32_t block_size, const std::string& lora,
                                    const std::string& cache_salt, const std::vector<MmItem>& mm_items,
                                    const std::optional<nb::bytes>& parent, std::uint32_t parent_position,
                                    std::string_view seed, bool tagged) {
  const std::span<const Token> tokens = argument.get();
  std::vector<VllmMmItem> items;
  for (const auto& [identifier, offset, length] : mm_items) {
    items.push_back({.identifier = identifier, .offset = offset, .length = length});
  }
  const VllmHashing hashing{.block_size = block_size,
                            .extras = {.lora_name = lora,
                                       .mm_items = items,
                                       .cache_salt = cache_salt,
                                       .style = tagged ? VllmExtras::Style::kTagged : VllmExtras::Style::kPlain},
                            .none_hash = vllm_none_hash(seed)};
  const std::optional<VllmParent> before =
      parent ? std::optional(VllmParent{.digest = digest_of(*parent), .position = parent_position}) : std::nullopt;
  std::vector<Digest> digests(blocks_in(tokens, block_size));
  const Result<std::size_t> count = [&] {
    const ReleaseGilIf gil(tokens.size() >= kManyTokens);
    return vllm_hash_blocks(tokens, hashing, before, digests);
  }();
  if (!count) {
    raise(count.error());
  }
  return bytes_of(digests);
}

std::vector<nb::bytes> sglang_digests(TokensArgument argument, std::uint32_t page_size,
                                      const std::optional<nb::bytes>& prior) {
  const std::span<const Token> tokens = argument.get();
  const std::optional<Digest> before = prior ? std::optional(digest_of(*prior)) : std::nullopt;
  std::vector<Digest> digests(blocks_in(tokens, page_size));
  const Result<std::size_t> count = [&] {
    const ReleaseGilIf gil(tokens.size() >= kManyTokens);
    return sglang_hash_pages(tokens, page_size, before, digests);
  }();
  if (!count) {
    raise(count.error());
  }
  return bytes_of(digests);
}

// The keys of digests of 16 to 32 bytes, which follow `parent` or begin a sequence.
template <auto adopt>
Keys adopted(const KeyHasher& hasher, const std::vector<nb::bytes>& digests, const BlockKey* parent) {
  std::vector<BlockKey> keys;
  keys.reserve(digests.size());
  std::optional<BlockKey> before = parent == nullptr ? std::nullopt : std::optional(*parent);
  for (const nb::bytes& digest : digests) {
    const std::uint64_t position = before ? before->position() + std::uint64_t{1} : 0;
    before = value_or_raise(adopt(hasher, before, span_of(digest), position));
    keys.push_back(*before);
  }
  return Keys(std::move(keys));
}

// The digest that 64 hexadecimal digits name.
Digest digest_of_hex(std::string_view hex) {
  const auto digit = [](char c) { return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1; };
  Digest digest;
  const bool is_hex =
      hex.size() == 2 * digest.bytes.size() && std::ranges::all_of(hex, [digit](char c) { return digit(c) >= 0; });
  if (!is_hex) {
    raise(ErrorCode::kInvalidArgument,
          str_cat("a page hash of ", hex.size(), " characters; SGLang's have 64 hexadecimal digits in lower case"));
  }
  for (std::size_t i = 0; i < digest.bytes.size(); ++i) {
    digest.bytes[i] = static_cast<std::byte>(digit(hex[2 * i]) * 16 + digit(hex[2 * i + 1]));
  }
  return digest;
}

Keys sglang_page_keys(const KeyHasher& hasher, const nb::typed<nb::sequence, nb::str>& hashes) {
  std::vector<BlockKey> keys;
  for (const nb::handle hash : hashes) {
    const Digest digest = digest_of_hex(nb::cast<std::string_view>(hash));
    keys.push_back(value_or_raise(sglang_adopt(hasher, std::nullopt, digest.bytes, 0)));
  }
  return Keys(std::move(keys));
}

Keys vllm_page_keys(const KeyHasher& hasher, const nb::typed<nb::sequence, nb::bytes>& digests) {
  std::vector<BlockKey> keys;
  for (const nb::handle digest : digests) {
    keys.push_back(value_or_raise(vllm_adopt(hasher, std::nullopt, span_of(nb::cast<nb::bytes>(digest)), 0)));
  }
  return Keys(std::move(keys));
}

Array<std::uint64_t> router_block_hashes(TokensArgument argument, std::uint32_t block_size, std::string_view salt,
                                         std::string_view lora, bool eagle,
                                         const std::vector<std::vector<std::uint64_t>>& mm_hashes) {
  const std::span<const Token> tokens = argument.get();
  const RouterHashing hashing{.block_size = block_size, .seed = salt_hash(salt, lora), .eagle = eagle};
  std::vector<BlockHash> hashes(router_block_count(tokens.size(), hashing));
  const Result<std::size_t> count = [&] {
    const ReleaseGilIf gil(tokens.size() >= kManyTokens);
    return router_hashes(tokens, hashing, hashes, mm_hashes);
  }();
  if (!count) {
    raise(count.error());
  }
  std::vector<std::uint64_t> numbers(hashes.size());
  std::ranges::transform(hashes, numbers.begin(), [](BlockHash hash) { return value_of(hash); });
  return make_array(std::move(numbers));
}

Keys router_keys(const std::vector<std::uint64_t>& hashes, std::uint64_t namespace_id, const BlockKey* parent) {
  std::vector<BlockKey> keys;
  keys.reserve(hashes.size());
  std::optional<BlockKey> before = parent == nullptr ? std::nullopt : std::optional(*parent);
  for (const std::uint64_t hash : hashes) {
    const std::uint64_t position = before ? before->position() + std::uint64_t{1} : 0;
    before = value_or_raise(adopt_hash(NamespaceId{namespace_id}, before, hash, position));
    keys.push_back(*before);
  }
  return Keys(std::move(keys));
}

}  // namespace

void bind_engines(nb::module_& module) {
  module.def("vllm_digests", &vllm_digests, nb::arg("tokens"), nb::arg("block_size"), nb::kw_only(),
             nb::arg("lora") = "", nb::arg("cache_salt") = "", nb::arg("mm_items") = nb::make_tuple(),
             nb::arg("parent") = nb::none(), nb::arg("parent_position") = 0,
             nb::arg("seed") = std::string(kVllmDefaultSeed), nb::arg("tagged") = true,
             R"(The digests that vLLM computes for the full blocks of `tokens` (--prefix-caching-hash-algo sha256_cbor).

`mm_items` are (identifier, offset, length), sorted. `parent` is the digest of the block before, at `parent_position`; `seed`
is PYTHONHASHSEED if the engine has it set. `tagged` is vLLM 0.32 and later.)");
  module.def("vllm_keys", &adopted<&vllm_adopt>, nb::arg("hasher"), nb::arg("digests"), nb::arg("parent") = nb::none(),
             R"(The keys of consecutive blocks from vLLM's digests, of 16 to 32 bytes each.

`hasher` has scheme vllm. The blocks follow `parent`, or begin a sequence.)");
  module.def("vllm_page_keys", &vllm_page_keys, nb::arg("hasher"), nb::arg("digests"),
             R"(The keys of blocks from digests of 16 to 32 bytes each, wherever the blocks are in their sequences.

For interfaces that name a block by its digest alone: every block counts as the first of a sequence. `hasher` has scheme vllm.)");
  module.def(
      "vllm_event_hash", [](const nb::bytes& digest) { return vllm_event_hash(digest_of(digest)); }, nb::arg("digest"),
      "The hash of the block in vLLM's events: the last 8 bytes of the digest.");
  module.def("sglang_digests", &sglang_digests, nb::arg("tokens"), nb::arg("page_size"), nb::arg("prior") = nb::none(),
             R"(The digests that SGLang computes for the full pages of `tokens`.

`prior` is the digest of the page before, or the storage seed of a request with an extra key or a cache salt.)");
  module.def(
      "sglang_storage_seed",
      [](std::optional<std::string_view> extra_key,
         std::optional<std::string_view> cache_salt) -> std::optional<nb::bytes> {
        const std::optional<Digest> seed = sglang_storage_seed(extra_key, cache_salt);
        return seed ? std::optional(bytes_of(*seed)) : std::nullopt;
      },
      nb::arg("extra_key") = nb::none(), nb::arg("cache_salt") = nb::none(),
      "The digest before the first page of a request with an extra key or a cache salt; None if it has neither.");
  module.def("sglang_keys", &adopted<&sglang_adopt>, nb::arg("hasher"), nb::arg("digests"),
             nb::arg("parent") = nb::none(),
             R"(The keys of consecutive pages from SGLang's digests, of 16 to 32 bytes each.

`hasher` has scheme sglang. The pages follow `parent`, or begin a sequence.)");
  module.def(
      "sglang_page_keys", &sglang_page_keys, nb::arg("hasher"), nb::arg("hashes"),
      R"(The keys of pages from SGLang's page hashes, 64 hexadecimal digits each, wherever the pages are in their sequences.

HiCache names a page by its hash alone, so that its position is not known: every page counts as the first of a sequence. `hasher`
has scheme sglang.)");
  module.def(
      "sglang_event_hash", [](const nb::bytes& digest) { return sglang_event_hash(digest_of(digest)); },
      nb::arg("digest"), "The hash of the page in SGLang's events: the first 8 bytes of the digest, signed.");
  module.def("router_hashes", &router_block_hashes, nb::arg("tokens"), nb::arg("block_size"), nb::kw_only(),
             nb::arg("salt") = "", nb::arg("lora") = "", nb::arg("eagle") = false,
             nb::arg("mm_hashes") = nb::make_tuple(),
             nb::sig("def router_hashes(tokens: collections.abc.Sequence[int] | typing_extensions.Buffer | "
                     "numpy.typing.NDArray[typing.Any], block_size: int, *, salt: str = '', lora: str = '', "
                     "eagle: bool = False, mm_hashes: collections.abc.Sequence[collections.abc.Sequence[int]] = ()) "
                     "-> numpy.typing.NDArray[numpy.uint64]"),
             R"(The local block hashes that a router computes from the tokens of a request.

`mm_hashes[i]` are the multimodal hashes of block i. An eagle window has one token more than a block.)");
  module.def("router_keys", &router_keys, nb::arg("hashes"), nb::arg("namespace_id"), nb::arg("parent") = nb::none(),
             "The keys of consecutive blocks from a router's sequence hashes (scheme router, without a secret).");
}

}  // namespace cairn::python
