#include "cairn/server/api.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "cairn/manager/manager_testing.h"
#include "cairn/tokens/token_sequence.h"

namespace cairn {
namespace {

using nlohmann::json;
using testing::compute;
using ::testing::HasSubstr;
using testing::kBlockSize;
using ::testing::Not;
using testing::reference_config;
using ::testing::SizeIs;
using testing::VirtualManager;

constexpr const char* kToken = "a-token-of-some-length";

ManagerConfig config_for_api() {
  ManagerConfig config = reference_config("", 8, 16, 0);
  config.requests.tenants = {{.name = "gold"}};
  config.event_token_ids = true;
  return config;
}

class ApiTest : public ::testing::Test {
 protected:
  // As the server calls it: functions that may wait are called at once.
  HttpResponse send(const std::string& method, const std::string& target, const std::string& body = "",
                    const std::string& authorization = std::string("Bearer ") + kToken) {
    const std::size_t question = target.find('?');
    HttpRequest request{.method = method,
                        .path = target.substr(0, question),
                        .query = question == std::string::npos ? "" : target.substr(question + 1),
                        .authorization = authorization,
                        .host = "127.0.0.1:9470",
                        .peer = "127.0.0.1",
                        .body = body};
    HttpAnswer answer = api_.handle(std::move(request));
    auto* const later = std::get_if<std::function<HttpResponse()>>(&answer);
    return later != nullptr ? (*later)() : std::get<HttpResponse>(std::move(answer));
  }
  json read(const std::string& target) {
    const HttpResponse response = send("GET", target, "", "");
    EXPECT_EQ(response.status, 200) << response.body;
    return json::parse(response.body);
  }
  json change(const std::string& path, const std::string& body) {
    const HttpResponse response = send("POST", path, body);
    EXPECT_EQ(response.status, 200) << response.body;
    return json::parse(response.body);
  }

  // Blocks of a prompt on the device and, because they are written through, in host memory.
  std::vector<Token> cache_prompt(std::size_t tokens) {
    std::vector<Token> prompt(tokens);
    for (std::size_t i = 0; i < tokens; ++i) {
      prompt[i] = static_cast<Token>(31'337 + i);
    }
    const TokenBlockSequence sequence = TokenBlockSequence::create(prompt, kBlockSize, manager_->hasher()).value();
    {
      const ImmutableBlocks blocks = compute(*manager_, {sequence.keys().begin(), sequence.keys().end()});
    }
    manager_.advance(std::chrono::seconds(1));
    return prompt;
  }

  std::vector<std::string> lines_;
  std::shared_ptr<Log> log_ = std::make_shared<Log>(LogConfig{.level = LogLevel::kInfo},
                                                    [this](std::string_view line) { lines_.emplace_back(line); });
  VirtualManager manager_{config_for_api()};
  Api api_{*manager_, {.token = kToken, .log = log_}};
};

std::string tokens_body(const std::vector<Token>& tokens) { return json{{"tokens", tokens}}.dump(); }

TEST_F(ApiTest, SaysWhatAPromptWouldHit) {
  std::vector<Token> prompt = cache_prompt(3 * kBlockSize);
  prompt.resize(5 * kBlockSize, 7);
  const json both = change("/v1/lookup", tokens_body(prompt));
  EXPECT_EQ(both["blocks"], 5);
  EXPECT_EQ(both["found"], 3);
  EXPECT_EQ(both["found_tokens"], 3 * kBlockSize);
  EXPECT_EQ(both["tiers"]["G1"], 3);
  ASSERT_TRUE(manager_->reset(CacheLevel::kG1));
  const json below = change("/v1/lookup", tokens_body(prompt));
  EXPECT_EQ(below["tiers"]["G2"], 3);
  EXPECT_EQ(below["runs"], json::parse(R"([{"tier":"G2","blocks":3}])"));
  // Another salt is another prompt.
  json salted = json::parse(tokens_body(prompt));
  salted["salt"] = "other";
  EXPECT_EQ(change("/v1/lookup", salted.dump())["found"], 0);
}

TEST_F(ApiTest, NeverShowsAPrompt) {
  const std::vector<Token> prompt = cache_prompt(2 * kBlockSize);
  change("/v1/lookup", tokens_body(prompt));
  const json events = read("/v1/events");
  ASSERT_THAT(events["events"], Not(SizeIs(0)));
  EXPECT_THAT(events.dump(), Not(HasSubstr("token_ids")));
  for (const std::string path : {"/v1/status", "/v1/events", "/v1/prefixes", "/v1/incidents", "/metrics"}) {
    EXPECT_THAT(send("GET", path).body, Not(HasSubstr("31337"))) << path;
  }
  change("/v1/reset", "");
  for (const std::string& line : lines_) {
    EXPECT_THAT(line, Not(HasSubstr("31337")));
  }
}

TEST_F(ApiTest, ChangesNeedTheToken) {
  for (const Api::Route& route : Api::routes()) {
    const std::string path(route.path);
    for (const char* const authorization : {"", "Bearer ", "Bearer a-token-of-some-lengthx", "Basic YTpi", kToken}) {
      const HttpResponse response = send(std::string(route.method), path, "", authorization);
      EXPECT_EQ(response.status == 401, route.needs_token) << path << " " << authorization << ": " << response.body;
    }
    EXPECT_NE(send(std::string(route.method), path).status, 401);
    EXPECT_EQ(route.needs_token, route.method == "POST") << path;
  }
}

TEST_F(ApiTest, WithoutATokenChangesAreRefusedAndTheMessageSaysWhatToDo) {
  const Api closed(*manager_, {});
  for (const char* const authorization : {"", "Bearer "}) {
    const auto answer = closed.handle({.method = "POST", .path = "/v1/reset", .authorization = authorization});
    const auto& response = std::get<HttpResponse>(answer);
    EXPECT_EQ(response.status, 401);
    EXPECT_THAT(response.body, HasSubstr("http.token_file"));
  }
}

TEST_F(ApiTest, APageOfAnotherSiteCannotReachThisMachineByItsName) {
  const auto status_for = [this](const char* host) {
    const auto answer = api_.handle({.method = "GET", .path = "/v1/status", .host = host});
    return std::get<HttpResponse>(answer).status;
  };
  for (const char* const host : {"127.0.0.1:9470", "localhost", "localhost:9470", "[::1]:9470", "[::1]", ""}) {
    EXPECT_EQ(status_for(host), 200) << host;
  }
  for (const char* const host :
       {"evil.example", "evil.example:9470", "10.0.0.7:9470", "127.0.0.1.evil.example", ":80"}) {
    EXPECT_EQ(status_for(host), 403) << host;
  }
}

TEST_F(ApiTest, ResetsAndTellsTheLog) {
  cache_prompt(3 * kBlockSize);
  EXPECT_EQ(change("/v1/reset", R"({"tier":"host"})")["reset"], 3);
  EXPECT_EQ(manager_->host()->counts().registered, 0U);
  EXPECT_EQ(manager_->device()->counts().registered, 3U);
  EXPECT_EQ(change("/v1/reset", "")["reset"], 3);
  EXPECT_EQ(manager_->device()->counts().registered, 0U);
  ASSERT_THAT(lines_, SizeIs(2));
  EXPECT_THAT(lines_[0], HasSubstr("reset of G2: done"));
  EXPECT_THAT(lines_[0], HasSubstr("peer=\"127.0.0.1\""));
  EXPECT_EQ(send("POST", "/v1/reset", R"({"tier":"disk"})").status, 404);
}

TEST_F(ApiTest, DropsSingleBlocks) {
  cache_prompt(3 * kBlockSize);
  std::vector<ResidentBlock> blocks;
  (void)manager_->device()->list_resident(0, 8, blocks);
  const json body{{"tier", "device"}, {"keys", {blocks[0].key.to_string()}}};
  EXPECT_EQ(change("/v1/reset", body.dump())["reset"], 1);
  EXPECT_EQ(manager_->device()->counts().registered, 2U);
}

TEST_F(ApiTest, Invalidates) {
  cache_prompt(3 * kBlockSize);
  EXPECT_EQ(change("/v1/invalidate", R"({"weights_generation":8})")["reset"], 6);
  EXPECT_EQ(manager_->weights_generation(), 8U);
  EXPECT_EQ(send("POST", "/v1/invalidate", R"({"weights_generation":8})").status, 400);
}

TEST_F(ApiTest, PausesAndResumes) {
  EXPECT_EQ(change("/v1/pause", R"({"from":"device","to":"host"})")["is_paused"], true);
  EXPECT_EQ(read("/v1/status")["links"][0]["is_paused"], true);
  EXPECT_EQ(change("/v1/resume", R"({"from":"G1","to":"G2"})")["is_paused"], false);
  EXPECT_EQ(read("/v1/status")["links"][0]["is_paused"], false);
  EXPECT_EQ(send("POST", "/v1/pause", R"({"from":"host","to":"disk"})").status, 404);
}

TEST_F(ApiTest, Resizes) {
  EXPECT_EQ(change("/v1/resize", R"({"blocks":4})")["blocks"], 4);
  manager_.advance(std::chrono::seconds(1));
  const json tiers = read("/v1/status")["tiers"];
  EXPECT_EQ(tiers[1]["withheld"], 12);
  EXPECT_EQ(
      change("/v1/resize", "{\"size\":\"" + std::to_string(8 * tiers[1]["block_bytes"].get<int>()) + "B\"}")["blocks"],
      8);
  EXPECT_EQ(send("POST", "/v1/resize", R"({"blocks":0})").status, 400);
  EXPECT_EQ(send("POST", "/v1/resize", R"({"blocks":99999999999})").status, 400);
}

TEST_F(ApiTest, DrainSaysWhetherNothingIsInFlight) {
  EXPECT_EQ(change("/v1/drain", "")["is_drained"], true);
  {
    const ImmutableBlocks blocks = compute(*manager_, testing::chain(1, 3));
  }
  const json busy = change("/v1/drain", "");
  EXPECT_EQ(busy["is_drained"], false) << busy;
  manager_.advance(std::chrono::seconds(1));
  EXPECT_EQ(change("/v1/drain", "")["is_drained"], true);
}

TEST_F(ApiTest, SetsTheLogLevel) {
  EXPECT_EQ(change("/v1/log", R"({"level":"error"})")["level"], "error");
  EXPECT_EQ(log_->level(), LogLevel::kError);
}

TEST_F(ApiTest, ReadinessNamesTheReason) {
  EXPECT_EQ(read("/healthz")["status"], "ok");
  EXPECT_EQ(read("/readyz")["ready"], true);
  const auto is_draining = std::make_shared<std::atomic<bool>>(true);
  const Api api(*manager_, {.is_draining = is_draining});
  const auto answer = api.handle({.method = "GET", .path = "/readyz"});
  EXPECT_EQ(std::get<HttpResponse>(answer).status, 503);
  EXPECT_THAT(std::get<HttpResponse>(answer).body, HasSubstr("shutting down"));
}

TEST_F(ApiTest, ShowsIncidentsWithAdvice) {
  manager_->add_incident(Incident::Kind::kTierOut, CacheLevel::kG3, "the disk is on fire");
  manager_.advance(std::chrono::seconds(5));
  const json read_back = read("/v1/incidents");
  ASSERT_THAT(read_back["incidents"], SizeIs(1));
  EXPECT_EQ(read_back["incidents"][0]["text"], "the disk is on fire");
  EXPECT_EQ(read_back["incidents"][0]["seconds_ago"], 5);
  EXPECT_THAT(read_back["incidents"][0]["advice"].get<std::string>(), HasSubstr("dmesg"));
}

TEST_F(ApiTest, EventsContinueWhereTheLastAnswerEnded) {
  cache_prompt(2 * kBlockSize);
  const json first = read("/v1/events?limit=1");
  ASSERT_THAT(first["events"], SizeIs(1));
  const json all = read("/v1/events?after=0");
  EXPECT_EQ(all["events"].back()["event_id"], all["last"]);
  EXPECT_EQ(first["events"][0]["event_id"], all["last"]);
  const std::uint64_t last = all["last"];
  EXPECT_THAT(read("/v1/events?after=" + std::to_string(last))["events"], SizeIs(0));
  EXPECT_EQ(send("GET", "/v1/events?after=" + std::to_string(last + 1)).status, 400);
  EXPECT_EQ(send("GET", "/v1/events?after=18446744073709551615").status, 400);
}

TEST_F(ApiTest, ManyClientsThatAskForPrefixesCostNoMoreThanOne) {
  cache_prompt(2 * kBlockSize);
  const auto ask = [this] { return api_.handle({.method = "GET", .path = "/v1/prefixes"}); };
  HttpAnswer first = ask();
  ASSERT_TRUE(std::holds_alternative<std::function<HttpResponse()>>(first));
  EXPECT_EQ(std::get<HttpResponse>(ask()).status, 503) << "it is being looked for";
  EXPECT_EQ(json::parse(std::get<std::function<HttpResponse()>>(first)().body)["blocks"], 4);
  EXPECT_EQ(std::get<HttpResponse>(ask()).status, 200) << "the same answer again";
}

TEST_F(ApiTest, APrefixRequestThatIsDroppedDoesNotBlockTheNext) {
  {
    const HttpAnswer dropped = api_.handle({.method = "GET", .path = "/v1/prefixes"});
  }
  EXPECT_TRUE(
      std::holds_alternative<std::function<HttpResponse()>>(api_.handle({.method = "GET", .path = "/v1/prefixes"})));
}

TEST_F(ApiTest, UnknownPathsAndMethods) {
  EXPECT_EQ(send("GET", "/v1/nothing").status, 404);
  EXPECT_EQ(send("GET", "/../etc/passwd").status, 404);
  EXPECT_EQ(send("DELETE", "/v1/status").status, 405);
  EXPECT_EQ(send("GET", "/v1/reset").status, 405);
  EXPECT_EQ(send("GET", "/v1/history?since=x").status, 400);
  EXPECT_EQ(send("GET", "/v1/prefixes?limit=1001").status, 400);
}

TEST_F(ApiTest, ThePageLoadsNothingFromElsewhere) {
  for (const char* const path : {"/", "/dashboard.js", "/dashboard.css"}) {
    const HttpResponse page = send("GET", path, "", "");
    EXPECT_EQ(page.status, 200);
    ASSERT_THAT(page.headers, Not(SizeIs(0)));
    EXPECT_THAT(page.headers[0].second, HasSubstr("default-src 'none'"));
    EXPECT_THAT(page.body, Not(HasSubstr("https://"))) << path;
  }
}

// --- the description of the API ---

class OpenApi {
 public:
  OpenApi() {
    std::ifstream file(CAIRN_OPENAPI_FILE);
    std::stringstream text;
    text << file.rdbuf();
    document_ = json::parse(text.str());
  }
  [[nodiscard]] const json& paths() const { return document_["paths"]; }
  [[nodiscard]] const json& document() const { return document_; }

  // What of `value` is not as `schema` says; empty if all is.
  std::string mismatch(const json& schema, const json& value, const std::string& where) const {
    if (schema.contains("$ref")) {
      const std::string name = schema["$ref"];
      return mismatch(document_["components"]["schemas"][name.substr(name.rfind('/') + 1)], value, where);
    }
    const std::string type = schema["type"];
    if (type == "array") {
      for (std::size_t i = 0; value.is_array() && i < value.size(); ++i) {
        if (const std::string wrong = mismatch(schema["items"], value[i], where + "[]"); !wrong.empty()) {
          return wrong;
        }
      }
      return value.is_array() ? "" : where + " is no array";
    }
    if (type != "object") {
      const bool fits = type == "string"    ? value.is_string()
                        : type == "boolean" ? value.is_boolean()
                        : type == "integer" ? value.is_number_integer()
                                            : value.is_number();
      return fits ? "" : where + " is no " + type;
    }
    if (!value.is_object()) {
      return where + " is no object";
    }
    if (schema.contains("additionalProperties")) {
      for (const auto& [name, one] : value.items()) {
        if (const std::string wrong = mismatch(schema["additionalProperties"], one, where + "." + name);
            !wrong.empty()) {
          return wrong;
        }
      }
      return "";
    }
    if (!schema.contains("properties")) {
      return "";
    }
    for (const auto& name : schema["required"]) {
      if (!value.contains(name.get<std::string>())) {
        return where + " lacks " + name.get<std::string>();
      }
    }
    for (const auto& [name, one] : value.items()) {
      if (!schema["properties"].contains(name)) {
        return where + " has " + name + ", which is not described";
      }
      if (const std::string wrong = mismatch(schema["properties"][name], one, where + "." + name); !wrong.empty()) {
        return wrong;
      }
    }
    return "";
  }

 private:
  json document_;
};

TEST_F(ApiTest, TheDescriptionHasTheRoutesOfTheServer) {
  const OpenApi description;
  std::set<std::string> described;
  for (const auto& [path, methods] : description.paths().items()) {
    for (const auto& [method, operation] : methods.items()) {
      described.insert(method + " " + path + (operation.contains("security") ? " with token" : ""));
    }
  }
  std::set<std::string> served;
  for (const Api::Route& route : Api::routes()) {
    std::string method(route.method);
    std::ranges::transform(method, method.begin(), [](char c) { return static_cast<char>(c - 'A' + 'a'); });
    served.insert(method + " " + std::string(route.path) + (route.needs_token ? " with token" : ""));
  }
  EXPECT_EQ(served, described);
  EXPECT_EQ(read("/v1/openapi.json"), description.document());
}

TEST_F(ApiTest, ResponsesHaveTheDescribedFields) {
  const OpenApi description;
  const std::vector<Token> prompt = cache_prompt(3 * kBlockSize);
  std::vector<Token> other = prompt;
  other.back() += 1;
  {
    const TokenBlockSequence sequence = TokenBlockSequence::create(other, kBlockSize, manager_->hasher()).value();
    const ImmutableBlocks blocks = compute(*manager_, {sequence.keys().begin(), sequence.keys().end()});
  }
  manager_->add_incident(Incident::Kind::kTierOut, CacheLevel::kG3, "text");
  api_.tick();
  const std::map<std::string, std::string> bodies = {
      {"/v1/lookup", tokens_body(prompt)},         {"/v1/invalidate", R"({"weights_generation":99})"},
      {"/v1/pause", R"({"from":"G1","to":"G2"})"}, {"/v1/resume", R"({"from":"G1","to":"G2"})"},
      {"/v1/resize", R"({"blocks":16})"},          {"/v1/log", R"({"level":"info"})"}};
  for (const auto& [path, methods] : description.paths().items()) {
    for (const auto& [method, operation] : methods.items()) {
      const auto body = bodies.find(path);
      const HttpResponse response =
          send(method == "get" ? "GET" : "POST", path, body == bodies.end() ? "" : body->second);
      ASSERT_EQ(response.status, 200) << path << ": " << response.body;
      const json& content = operation["responses"]["200"]["content"];
      const std::string type = content.begin().key();
      EXPECT_THAT(response.content_type, ::testing::StartsWith(type)) << path;
      if (type == "application/json") {
        const json read_back = json::parse(response.body);
        EXPECT_EQ(description.mismatch(content[type]["schema"], read_back, path), "");
      }
      if (operation.contains("requestBody") && body != bodies.end()) {
        EXPECT_EQ(description.mismatch(operation["requestBody"]["content"]["application/json"]["schema"],
                                       json::parse(body->second), path + " body"),
                  "");
      }
    }
  }
  // The schema of errors.
  const json error = json::parse(send("POST", "/v1/lookup", "7").body);
  EXPECT_EQ(description.mismatch(description.document()["components"]["schemas"]["Error"], error, "error"), "");
}

}  // namespace
}  // namespace cairn
