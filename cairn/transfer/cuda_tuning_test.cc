#include "cairn/transfer/cuda_tuning.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace cairn {
namespace {

TEST(CudaTuningTest, IsKeptAsText) {
  CudaTuning tuning;
  tuning.multiprocessors = 8;
  tuning.engines_from_bytes = ~std::uint64_t{0};
  EXPECT_EQ(*CudaTuning::parse(tuning.to_string()), tuning);
  EXPECT_EQ(*CudaTuning::parse(""), CudaTuning());
  EXPECT_EQ(CudaTuning::parse("  pieces=2 ")->pieces, 2U);
}

TEST(CudaTuningTest, SaysWhichWordIsNone) {
  for (const char* const text :
       {"pieces", "pieces=", "pieces=x", "pieces=1x", "pieces=-1", "speed=3", "pieces=99999999999"}) {
    const Result<CudaTuning> tuning = CudaTuning::parse(text);
    ASSERT_FALSE(tuning) << text;
    EXPECT_THAT(tuning.error().message, ::testing::HasSubstr(text));
  }
}

}  // namespace
}  // namespace cairn
