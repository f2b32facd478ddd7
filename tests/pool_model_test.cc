// Random sequences of operations on a BlockPool and on the naive model of it: after each one they agree on counts,
// lookups, victims and events, and the pool's invariants hold.
//
//     pool_model_test --operations=N --seed=S        N operations at least, over every policy
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <charconv>
#include <cstdint>
#include <iostream>
#include <sstream>
#include <string_view>
#include <vector>

#include "tests/pool_pair_testing.h"

namespace cairn::model {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
std::uint64_t g_operations = 20'000;
#else
std::uint64_t g_operations = 200'000;
#endif
std::uint64_t g_seed = 20'240'607;

// The policies whose order the naive pool knows. The others are compared with models in evict/.
constexpr PolicyKind kModelled[] = {PolicyKind::kFifo, PolicyKind::kLru, PolicyKind::kLineageTick,
                                    PolicyKind::kLineageFifo};

rc::Gen<std::vector<Operation>> operations() {
  const auto number = rc::gen::resize(rc::kNominalSize, rc::gen::arbitrary<std::uint8_t>());
  const auto one = rc::gen::build<Operation>(
      rc::gen::set(&Operation::kind, rc::gen::inRange<std::uint8_t>(0, PoolPair::kKinds)),
      rc::gen::set(&Operation::a, number), rc::gen::set(&Operation::b, number), rc::gen::set(&Operation::c, number),
      rc::gen::set(&Operation::milliseconds, rc::gen::inRange<std::uint8_t>(0, 16)));
  return rc::gen::resize(400, rc::gen::container<std::vector<Operation>>(one));
}

BlockPoolOptions any_options(PolicyKind policy) {
  BlockPoolOptions options;
  options.policy = policy;
  options.leaves_first = policy == PolicyKind::kLru && *rc::gen::arbitrary<bool>();
  options.block_size = 4;
  options.capacity = *rc::gen::resize(rc::kNominalSize, rc::gen::inRange<std::uint32_t>(1, 41));
  options.duplicates = *rc::gen::element(Duplicates::kReject, Duplicates::kAllow);
  options.time_to_live = *rc::gen::arbitrary<bool>();
  options.reset_on_release = *rc::gen::weightedElement<bool>({{7, false}, {1, true}});
  options.low_water =
      *rc::gen::weightedOneOf<std::uint32_t>({{1, rc::gen::just(0U)}, {3, rc::gen::inRange(0U, options.capacity + 1)}});
  std::uint32_t left = options.capacity;
  for (std::uint32_t tenants = *rc::gen::inRange<std::uint32_t>(0, 4); tenants > 0; --tenants) {
    TenantQuota quota{.name = "tenant", .reserved = *rc::gen::inRange<std::uint32_t>(0, left / 2 + 1)};
    left -= quota.reserved;
    if (*rc::gen::arbitrary<bool>()) {
      quota.limit = quota.reserved + *rc::gen::inRange<std::uint32_t>(0, options.capacity);
    }
    options.tenants.push_back(quota);
  }
  return options;
}

class PoolModelTest : public ::testing::TestWithParam<PolicyKind> {};

TEST_P(PoolModelTest, AgreesWithTheNaivePoolAfterEveryOperation) {
  std::uint64_t done = 0;
  for (std::uint64_t round = 0; done < g_operations / std::size(kModelled) + 1; ++round) {
    rc::detail::TestParams params;
    params.seed = g_seed + round;
    params.maxSuccess = 50;
    const rc::detail::TestResult result = rc::detail::checkTestable(
        [&] {
          PoolPair pair(any_options(GetParam()));
          for (const Operation& op : *operations()) {
            pair.run(op);
            pair.check();
            ++done;
          }
        },
        rc::detail::TestMetadata{}, params);
    if (!result.template is<rc::detail::SuccessResult>()) {
      std::ostringstream text;
      rc::detail::printResultMessage(result, text);
      FAIL() << "with --seed=" << params.seed << ":\n" << text.str();
    }
  }
  std::cout << done << " operations, seeds from " << g_seed << '\n';
}

INSTANTIATE_TEST_SUITE_P(Policies, PoolModelTest, ::testing::ValuesIn(kModelled), [](const auto& test) {
  std::string name(to_string(test.param));
  std::erase(name, '-');
  return name;
});

// Takes "--name=NUMBER" out of the arguments.
bool parse(std::string_view argument, std::string_view name, std::uint64_t& value) {
  if (!argument.starts_with(name)) {
    return false;
  }
  const std::string_view digits = argument.substr(name.size());
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  return error == std::errc() && end == digits.data() + digits.size();
}

}  // namespace
}  // namespace cairn::model

int main(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (cairn::model::parse(argument, "--operations=", cairn::model::g_operations) ||
        cairn::model::parse(argument, "--seed=", cairn::model::g_seed)) {
      continue;
    }
    if (!argument.starts_with("--gtest")) {
      std::cerr << "unknown argument " << argument << "; give --operations=N, --seed=S or --gtest_...\n";
      return 2;
    }
  }
  std::cout << "pool_model_test --operations=" << cairn::model::g_operations << " --seed=" << cairn::model::g_seed
            << '\n';
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
