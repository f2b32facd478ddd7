#include "cairn/base/result.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

namespace cairn {
namespace {

Result<int> half(int number) {
  if (number % 2 != 0) {
    return fail(ErrorCode::kInvalidArgument, "an odd number has no half");
  }
  return number / 2;
}

TEST(ResultTest, HoldsAValue) {
  const Result<int> result = half(8);
  ASSERT_TRUE(result.has_value());
  EXPECT_EQ(*result, 4);
}

TEST(ResultTest, HoldsAnErrorThatSaysWhy) {
  const Result<int> result = half(7);
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(result.error().to_string(), "invalid_argument: an odd number has no half");
}

TEST(ResultTest, CarriesMoveOnlyValuesBothWays) {
  Result<std::unique_ptr<int>> good = std::make_unique<int>(3);
  std::unique_ptr<int> taken = *std::move(good);
  EXPECT_EQ(*taken, 3);
  Result<int, std::unique_ptr<int>> bad = Unexpected(std::move(taken));
  EXPECT_EQ(*std::move(bad).error(), 3);
}

TEST(ResultTest, StatusIsASuccessByDefault) {
  EXPECT_TRUE(Status().has_value());
  const Status failed = fail(ErrorCode::kExhausted, "full");
  EXPECT_EQ(failed.error().message, "full");
}

Status halve(int& number, int times) {
  for (int i = 0; i < times; ++i) {
    CAIRN_TRY_ASSIGN(number, half(number));
  }
  return Status();
}

Result<int> quarter(int number) {
  CAIRN_TRY(halve(number, 1));
  CAIRN_TRY_ASSIGN(const int made, half(number));
  return made;
}

TEST(ResultTest, TryPassesErrorsOnAndUnwrapsValues) {
  EXPECT_EQ(*quarter(8), 2);
  EXPECT_EQ(quarter(7).error().message, "an odd number has no half");
  EXPECT_EQ(quarter(6).error().message, "an odd number has no half");
}

TEST(ResultTest, TryMovesValuesAndErrorsThatCannotBeCopied) {
  const auto pass_on = [](Result<std::unique_ptr<int>, std::unique_ptr<int>> from)
      -> Result<std::unique_ptr<int>, std::unique_ptr<int>> {
    CAIRN_TRY_ASSIGN(auto taken, std::move(from));
    return taken;
  };
  EXPECT_EQ(**pass_on(std::make_unique<int>(3)), 3);
  EXPECT_EQ(*pass_on(Unexpected(std::make_unique<int>(4))).error(), 4);
}

TEST(ResultTest, WhatAFailedStatusHoldsCanBeTaken) {
  Result<void, std::unique_ptr<int>> failed = Unexpected(std::make_unique<int>(5));
  const std::unique_ptr<int> taken = std::move(failed).error();
  EXPECT_EQ(*taken, 5);
}

TEST(ResultDeathTest, TheWrongSideAborts) {
  EXPECT_DEATH(static_cast<void>(half(7).value()),
               "value\\(\\) of a failed Result: invalid_argument: an odd number has no half");
  EXPECT_DEATH(static_cast<void>(*Result<int, int>(Unexpected(3))), "value\\(\\) of a failed Result");
  EXPECT_DEATH(static_cast<void>(half(8).error()), "error\\(\\) of a Result that has a value");
}

}  // namespace
}  // namespace cairn
