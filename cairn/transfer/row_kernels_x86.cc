// The kernels of x86-64 processors with wide vectors. Functions are compiled for what they use by their attribute, and
// called only where the processor has it.
#if defined(__x86_64__)

#include <immintrin.h>

#include <cstring>

#include "cairn/transfer/row_kernels.h"

// g++ 12 takes the placeholders inside its own vector headers for variables that are read before they are written.
#if !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif

#define CAIRN_AVX2 [[gnu::target("avx2")]]
#define CAIRN_AVX512 [[gnu::target("avx512f,avx512bw,avx512dq,avx512vl")]]

namespace cairn::internal {

namespace {

// Bytes before the destination is aligned to a vector of `width` bytes; whole words (can_stream()).
std::uint64_t bytes_to_alignment(const std::byte* to, std::uint64_t width) {
  return (0 - reinterpret_cast<std::uintptr_t>(to)) % width;
}

// What the processor would not fetch by itself in time; never beyond the row. Inlined always: g++ takes a function that
// only fetches for one that does nothing, and drops its calls.
constexpr std::uint64_t kAhead = 4096;
template <std::uint64_t kBytes>
[[gnu::always_inline]] inline void fetch_ahead(const std::byte* from, std::uint64_t left) {
  if (left >= kAhead + kBytes) {
    for (std::uint64_t at = 0; at < kBytes; at += 64) {
      _mm_prefetch(reinterpret_cast<const char*>(from + kAhead + at), _MM_HINT_T0);
    }
  }
}

// Steps of the summands from one word to the `count`-th after it.
constexpr std::uint64_t step_of(std::uint32_t count) {
  return (std::uint64_t{count * kSecondStep} << 32) | std::uint64_t{count * kFirstStep};
}

// The sum of the lanes. The compiler's own reduction adds signed numbers, which must not overflow.
CAIRN_AVX2 inline std::uint64_t total(__m256i lanes) {
  const __m128i halves = _mm_add_epi64(_mm256_castsi256_si128(lanes), _mm256_extracti128_si256(lanes, 1));
  return static_cast<std::uint64_t>(_mm_cvtsi128_si64(_mm_add_epi64(halves, _mm_unpackhi_epi64(halves, halves))));
}
CAIRN_AVX512 inline std::uint64_t total(__m512i lanes) {
  return total(_mm256_add_epi64(_mm512_castsi512_si256(lanes), _mm512_extracti64x4_epi64(lanes, 1)));
}

// ---- 512 bits ----

struct Sums512 {
  __m512i products;
  __m512i words;
};

CAIRN_AVX512 inline void add(Sums512& sums, __m512i words, __m512i keys) {
  const __m512i keyed = _mm512_add_epi32(words, keys);
  sums.products = _mm512_add_epi64(sums.products, _mm512_mul_epu32(keyed, _mm512_srli_epi64(keyed, 32)));
  sums.words = _mm512_add_epi64(sums.words, words);
}

template <bool kSum, bool kCopy, bool kStream>
CAIRN_AVX512 inline void whole_vector(Sums512& sums, const std::byte* from, std::byte* to, __m512i keys) {
  const __m512i words = _mm512_loadu_si512(from);
  if constexpr (kStream) {
    _mm512_stream_si512(reinterpret_cast<__m512i*>(to), words);
  } else if constexpr (kCopy) {
    _mm512_storeu_si512(to, words);
  }
  if constexpr (kSum) {
    add(sums, words, keys);
  }
}

// Less than a vector: 1 to 63 bytes. Lanes beyond them are neither read nor written nor added up.
template <bool kSum, bool kCopy>
CAIRN_AVX512 inline void part_vector(Sums512& sums, const std::byte* from, std::byte* to, __m512i keys,
                                     std::uint64_t bytes) {
  const __mmask64 mask = (std::uint64_t{1} << bytes) - 1;
  const __m512i words = _mm512_maskz_loadu_epi8(mask, from);
  if constexpr (kCopy) {
    _mm512_mask_storeu_epi8(to, mask, words);
  }
  if constexpr (kSum) {
    const auto lanes = static_cast<__mmask8>((1U << ((bytes + 7) / 8)) - 1);
    const __m512i keyed = _mm512_maskz_mov_epi64(lanes, _mm512_add_epi32(words, keys));
    sums.products = _mm512_add_epi64(sums.products, _mm512_mul_epu32(keyed, _mm512_srli_epi64(keyed, 32)));
    sums.words = _mm512_add_epi64(sums.words, words);
  }
}

template <bool kSum, bool kCopy, bool kStream>
CAIRN_AVX512 BlockSums rows_512(const RowRun& run) {
  constexpr std::uint64_t kWidth = 64;
  const __m512i lanes =
      _mm512_setr_epi64(step_of(0), step_of(1), step_of(2), step_of(3), step_of(4), step_of(5), step_of(6), step_of(7));
  const __m512i one_step = _mm512_set1_epi64(static_cast<long long>(step_of(8)));
  const __m512i four_steps = _mm512_set1_epi64(static_cast<long long>(step_of(32)));
  Sums512 sums[4];
  for (Sums512& each : sums) {
    each = {_mm512_setzero_si512(), _mm512_setzero_si512()};
  }
  for (std::uint64_t row = 0; row < run.rows; ++row) {
    const std::byte* from = run.from + row * run.from_step;
    std::byte* to = kCopy ? run.to + row * run.to_step : nullptr;
    std::uint64_t position = run.first_word + row * run.word_step;
    std::uint64_t left = run.row_bytes;
    if constexpr (kStream) {
      if (const std::uint64_t head = bytes_to_alignment(to, kWidth); head > 0) {
        const __m512i keys = _mm512_add_epi32(_mm512_set1_epi64(static_cast<long long>(summands(position))), lanes);
        part_vector<kSum, kCopy>(sums[0], from, to, keys, head);
        from += head;
        to += head;
        position += head / 8;
        left -= head;
      }
    }
    __m512i keys[4];
    keys[0] = _mm512_add_epi32(_mm512_set1_epi64(static_cast<long long>(summands(position))), lanes);
    if (left >= 4 * kWidth) {
      keys[1] = _mm512_add_epi32(keys[0], one_step);
      keys[2] = _mm512_add_epi32(keys[1], one_step);
      keys[3] = _mm512_add_epi32(keys[2], one_step);
      do {
        fetch_ahead<4 * kWidth>(from, left);
        for (std::size_t i = 0; i < 4; ++i) {
          whole_vector<kSum, kCopy, kStream>(sums[i], from + i * kWidth, kCopy ? to + i * kWidth : nullptr, keys[i]);
          keys[i] = _mm512_add_epi32(keys[i], four_steps);
        }
        from += 4 * kWidth;
        to += kCopy ? 4 * kWidth : 0;
        left -= 4 * kWidth;
      } while (left >= 4 * kWidth);
    }
    for (; left >= kWidth; left -= kWidth, from += kWidth, to += kCopy ? kWidth : 0) {
      whole_vector<kSum, kCopy, kStream>(sums[0], from, to, keys[0]);
      keys[0] = _mm512_add_epi32(keys[0], one_step);
    }
    if (left > 0) {
      part_vector<kSum, kCopy>(sums[1], from, to, keys[0], left);
    }
  }
  if constexpr (kStream) {
    _mm_sfence();  // streaming stores are ordered by nothing else
  }
  if constexpr (!kSum) {
    return {};
  }
  for (std::size_t i = 1; i < 4; ++i) {
    sums[0].products = _mm512_add_epi64(sums[0].products, sums[i].products);
    sums[0].words = _mm512_add_epi64(sums[0].words, sums[i].words);
  }
  return {.products = total(sums[0].products), .words = total(sums[0].words)};
}

// ---- 256 bits ----

struct Sums256 {
  __m256i products;
  __m256i words;
};

template <bool kSum, bool kCopy, bool kStream>
CAIRN_AVX2 inline void whole_vector(Sums256& sums, const std::byte* from, std::byte* to, __m256i keys) {
  const __m256i words = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  if constexpr (kStream) {
    _mm256_stream_si256(reinterpret_cast<__m256i*>(to), words);
  } else if constexpr (kCopy) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), words);
  }
  if constexpr (kSum) {
    const __m256i keyed = _mm256_add_epi32(words, keys);
    sums.products = _mm256_add_epi64(sums.products, _mm256_mul_epu32(keyed, _mm256_srli_epi64(keyed, 32)));
    sums.words = _mm256_add_epi64(sums.words, words);
  }
}

// Any number of bytes, word by word: what is left at the ends of rows.
template <bool kSum, bool kCopy>
void few_words(BlockSums& sums, const std::byte* from, std::byte* to, std::uint64_t position, std::uint64_t bytes) {
  for (std::uint64_t at = 0; at < bytes; at += 8, ++position) {
    const std::uint64_t piece = bytes - at < 8 ? bytes - at : 8;
    std::uint64_t word = 0;
    std::memcpy(&word, from + at, piece);
    if constexpr (kCopy) {
      std::memcpy(to + at, &word, piece);
    }
    if constexpr (kSum) {
      const std::uint64_t key = summands(position);
      const std::uint32_t low = static_cast<std::uint32_t>(word) + static_cast<std::uint32_t>(key);
      const std::uint32_t high = static_cast<std::uint32_t>(word >> 32) + static_cast<std::uint32_t>(key >> 32);
      sums.products += std::uint64_t{low} * high;
      sums.words += word;
    }
  }
}

template <bool kSum, bool kCopy, bool kStream>
CAIRN_AVX2 BlockSums rows_256(const RowRun& run) {
  constexpr std::uint64_t kWidth = 32;
  const __m256i lanes = _mm256_setr_epi64x(step_of(0), static_cast<long long>(step_of(1)),
                                           static_cast<long long>(step_of(2)), static_cast<long long>(step_of(3)));
  const __m256i one_step = _mm256_set1_epi64x(static_cast<long long>(step_of(4)));
  const __m256i two_steps = _mm256_set1_epi64x(static_cast<long long>(step_of(8)));
  Sums256 sums[2];
  for (Sums256& each : sums) {
    each = {_mm256_setzero_si256(), _mm256_setzero_si256()};
  }
  BlockSums rest;
  for (std::uint64_t row = 0; row < run.rows; ++row) {
    const std::byte* from = run.from + row * run.from_step;
    std::byte* to = kCopy ? run.to + row * run.to_step : nullptr;
    std::uint64_t position = run.first_word + row * run.word_step;
    std::uint64_t left = run.row_bytes;
    if constexpr (kStream) {
      const std::uint64_t head = bytes_to_alignment(to, kWidth);
      few_words<kSum, kCopy>(rest, from, to, position, head);
      from += head;
      to += head;
      position += head / 8;
      left -= head;
    }
    __m256i keys[2];
    keys[0] = _mm256_add_epi32(_mm256_set1_epi64x(static_cast<long long>(summands(position))), lanes);
    keys[1] = _mm256_add_epi32(keys[0], one_step);
    for (; left >= 2 * kWidth; left -= 2 * kWidth, from += 2 * kWidth, position += 2 * kWidth / 8) {
      fetch_ahead<2 * kWidth>(from, left);
      for (std::size_t i = 0; i < 2; ++i) {
        whole_vector<kSum, kCopy, kStream>(sums[i], from + i * kWidth, kCopy ? to + i * kWidth : nullptr, keys[i]);
        keys[i] = _mm256_add_epi32(keys[i], two_steps);
      }
      to += kCopy ? 2 * kWidth : 0;
    }
    if (left >= kWidth) {
      whole_vector<kSum, kCopy, kStream>(sums[0], from, to, keys[0]);
      from += kWidth;
      to += kCopy ? kWidth : 0;
      position += kWidth / 8;
      left -= kWidth;
    }
    few_words<kSum, kCopy>(rest, from, to, position, left);
  }
  if constexpr (kStream) {
    _mm_sfence();  // streaming stores are ordered by nothing else
  }
  if constexpr (!kSum) {
    return {};
  }
  rest.products += total(_mm256_add_epi64(sums[0].products, sums[1].products));
  rest.words += total(_mm256_add_epi64(sums[0].words, sums[1].words));
  return rest;
}

bool streams(const RowRun& run, Stores stores) { return stores == Stores::kStreaming && can_stream(run); }

}  // namespace

std::size_t add_x86_kernels(std::span<RowKernel> kernels) {
  std::size_t count = 0;
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl")) {
    kernels[count++] = {
        .name = "avx512",
        .sum = rows_512<true, false, false>,
        .copy_and_sum =
            [](const RowRun& run, Stores stores) {
              return streams(run, stores) ? rows_512<true, true, true>(run) : rows_512<true, true, false>(run);
            },
        .copy =
            [](const RowRun& run, Stores stores) {
              streams(run, stores) ? rows_512<false, true, true>(run) : rows_512<false, true, false>(run);
            }};
  }
  if (__builtin_cpu_supports("avx2")) {
    kernels[count++] = {
        .name = "avx2",
        .sum = rows_256<true, false, false>,
        .copy_and_sum =
            [](const RowRun& run, Stores stores) {
              return streams(run, stores) ? rows_256<true, true, true>(run) : rows_256<true, true, false>(run);
            },
        .copy =
            [](const RowRun& run, Stores stores) {
              streams(run, stores) ? rows_256<false, true, true>(run) : rows_256<false, true, false>(run);
            }};
  }
  return count;
}

}  // namespace cairn::internal

#endif
