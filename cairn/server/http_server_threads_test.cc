#include "cairn/server/http_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>

#include "cairn/manager/config_testing.h"
#include "cairn/server/http_call.h"

namespace cairn {
namespace {

using std::chrono::seconds;
using ::testing::HasSubstr;

ManagerConfig listening_config(const std::string& listen = "127.0.0.1:0") {
  ManagerConfig config = usable_config();
  config.http.listen = listen;
  return config;
}

Result<std::unique_ptr<HttpServer>> start(const ManagerConfig& config) {
  const KvBlockManager manager = std::move(KvBlockManager::make(config)).value();
  return HttpServer::start(manager);
}

HttpResponse call(const HttpServer& server, HttpRequest request) {
  Result<HttpResponse> got = call_http(HttpAddress::parse(server.address()).value(), request, seconds(30));
  EXPECT_TRUE(got) << got.error().message;
  return got ? *std::move(got) : HttpResponse{.status = 0};
}

TEST(HttpServer, OneSettingOpensThePort) {
  const auto server = start(listening_config());
  ASSERT_TRUE(server) << server.error().message;
  EXPECT_EQ(call(**server, {.method = "GET", .path = "/healthz"}).status, 200);
  EXPECT_THAT(call(**server, {.method = "GET", .path = "/metrics"}).body,
              HasSubstr("cairn_blocks_free{tier=\"G2\"} 8"));
  EXPECT_THAT(call(**server, {.method = "GET", .path = "/"}).body, HasSubstr("<title>Cairn</title>"));
  EXPECT_EQ(call(**server, {.method = "POST", .path = "/v1/reset"}).status, 401);
}

TEST(HttpServer, WithoutTheSettingThereIsNone) {
  const auto server = start(usable_config());
  ASSERT_TRUE(server);
  EXPECT_EQ(*server, nullptr);
}

TEST(HttpServer, ChangesTheManagerWithTheToken) {
  ManagerConfig config = listening_config();
  config.http.token = "sixteen-or-more-characters";
  const KvBlockManager manager = std::move(KvBlockManager::make(config)).value();
  const auto server = std::move(HttpServer::start(manager)).value();
  const HttpResponse response = call(*server, {.method = "POST",
                                               .path = "/v1/resize",
                                               .authorization = "Bearer " + config.http.token,
                                               .body = R"({"blocks":3})"});
  EXPECT_EQ(response.status, 200) << response.body;
  const HttpResponse reset =
      call(*server, {.method = "POST", .path = "/v1/reset", .authorization = "Bearer " + config.http.token});
  EXPECT_EQ(reset.status, 200) << reset.body;
  EXPECT_EQ(manager.fences(), 1U);
}

TEST(HttpServer, RefusesToBeReachedFromElsewhereWithoutAToken) {
  for (const char* const listen : {"0.0.0.0:0", "[::]:0"}) {
    const auto server = start(listening_config(listen));
    ASSERT_FALSE(server);
    EXPECT_EQ(server.error().code, ErrorCode::kInvalidArgument);
    EXPECT_THAT(server.error().message, HasSubstr("http.token_file"));
  }
}

TEST(HttpServer, RefusesAWrongAddressTokenOrPort) {
  EXPECT_THAT(start(listening_config("9470")).error().message, HasSubstr("http.listen"));
  ManagerConfig config = listening_config();
  config.http.token = "short";
  EXPECT_THAT(start(config).error().message, HasSubstr("at least 16"));
  EXPECT_THAT(start(config).error().message, ::testing::Not(HasSubstr("short")));
  config.http = {.listen = "127.0.0.1:0", .token_file = "/nowhere/token"};
  EXPECT_THAT(start(config).error().message, HasSubstr("/nowhere/token"));
  // An address that this machine does not have, from a range for documentation.
  ManagerConfig elsewhere = listening_config("192.0.2.1:9470");
  elsewhere.http.token = "sixteen-or-more-characters";
  EXPECT_EQ(start(elsewhere).error().code, ErrorCode::kUnavailable);
  ManagerConfig ranked = listening_config("127.0.0.1:65535");
  ranked.dp_rank = 1;
  EXPECT_EQ(start(ranked).error().code, ErrorCode::kOutOfRange);
}

TEST(HttpServer, TakesTheNextPortIfTheFirstIsTaken) {
  const auto first = start(listening_config());
  ASSERT_TRUE(first);
  const auto second = start(listening_config((*first)->address()));
  ASSERT_TRUE(second) << second.error().message;
  const std::uint16_t port = HttpAddress::parse((*first)->address())->port;
  EXPECT_GT(HttpAddress::parse((*second)->address())->port, port);
  EXPECT_EQ(call(**second, {.method = "GET", .path = "/healthz"}).status, 200);
}

TEST(HttpServer, StopsBeingReadyBeforeItStops) {
  const auto server = start(listening_config());
  EXPECT_EQ(call(**server, {.method = "GET", .path = "/readyz"}).status, 200);
  (*server)->begin_draining();
  EXPECT_EQ(call(**server, {.method = "GET", .path = "/readyz"}).status, 503);
}

}  // namespace
}  // namespace cairn
