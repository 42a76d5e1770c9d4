#include "server/access.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace coppice {
namespace {

int Status(const Access& access, std::map<std::string, std::string> headers) {
  HttpRequest head;
  head.headers = std::move(headers);
  const auto fault = access.Refuse(head);
  return fault ? fault->status : 200;
}

TEST(Access, Compares) {
  EXPECT_TRUE(EqualInConstantTime("", ""));
  EXPECT_TRUE(EqualInConstantTime("secret", "secret"));
  for (const char* other : {"", "secre", "secrets", "Secret", "secreT", "secretsecret"}) {
    EXPECT_FALSE(EqualInConstantTime("secret", other)) << other;
    EXPECT_FALSE(EqualInConstantTime(other, "secret")) << other;
  }
}

TEST(Access, AsksForAKey) {
  const Access access({"one", "two"}, "0.0.0.0");
  EXPECT_EQ(Status(access, {}), 401);
  EXPECT_EQ(Status(access, {{"authorization", "Bearer"}}), 401);
  EXPECT_EQ(Status(access, {{"authorization", "Bearer "}}), 401);
  EXPECT_EQ(Status(access, {{"authorization", "Bearer tw"}}), 401);
  EXPECT_EQ(Status(access, {{"authorization", "Basic two"}}), 401);
  EXPECT_EQ(Status(access, {{"authorization", "Bearer two"}}), 200);
  EXPECT_EQ(Status(access, {{"x-api-key", "one"}}), 200);
  // A page elsewhere cannot know the key; a proxy may use any name.
  EXPECT_EQ(
      Status(access, {{"x-api-key", "one"}, {"host", "llm.example"}, {"origin", "https://llm.example"}}),
      200);
}

HttpRequest FromPage(const std::string& method, const std::string& origin) {
  HttpRequest head;
  head.method = method;
  head.headers = {{"host", "localhost:8080"}, {"origin", origin}, {"access-control-request-headers", "x-y"}};
  return head;
}

TEST(Access, OriginsThatAreListed) {
  const Access access({}, "127.0.0.1", {}, {"https://app.example"});
  EXPECT_FALSE(access.Refuse(FromPage("POST", "https://app.example")));
  EXPECT_TRUE(access.Refuse(FromPage("POST", "https://other.example")));
  EXPECT_TRUE(access.Refuse(FromPage("POST", "https://app.example.org")));
  const HttpHeaders cors = access.CorsHeaders(FromPage("POST", "https://app.example"));
  EXPECT_THAT(cors, testing::Contains(std::pair<std::string, std::string>("Access-Control-Allow-Origin",
                                                                          "https://app.example")));
  EXPECT_THAT(cors, testing::Contains(std::pair<std::string, std::string>("Access-Control-Expose-Headers",
                                                                          "request-id, x-request-id")));
  EXPECT_EQ(access.CorsHeaders(FromPage("POST", "https://other.example")), HttpHeaders());
  const auto reply = access.Preflight(FromPage("OPTIONS", "https://app.example"));
  ASSERT_TRUE(reply);
  EXPECT_EQ(reply->status, 200);
  EXPECT_THAT(reply->headers,
              testing::Contains(std::pair<std::string, std::string>("Access-Control-Allow-Headers", "x-y")));
  EXPECT_EQ(access.Preflight(FromPage("OPTIONS", "https://other.example"))->headers, HttpHeaders());
  EXPECT_FALSE(Access({}, "127.0.0.1").Preflight(FromPage("OPTIONS", "https://other.example")));
  EXPECT_FALSE(access.Preflight(FromPage("POST", "https://app.example")));
  // A key is needed from everywhere.
  EXPECT_TRUE(Access({"key"}, "0.0.0.0", {}, {"*"}).Refuse(FromPage("POST", "https://app.example")));
}

TEST(Access, OriginsOfThisMachine) {
  const Access access({}, "127.0.0.1", {}, {"localhost"});
  for (const char* origin :
       {"http://localhost", "http://localhost:3000", "http://127.0.0.1:80", "http://[::1]:3000"})
    EXPECT_FALSE(access.Refuse(FromPage("POST", origin))) << origin;
  for (const char* origin : {"http://localhost.example", "http://notlocalhost", "http://127.0.0.1.example",
                             "localhost.example", "null", "http://"})
    EXPECT_TRUE(access.Refuse(FromPage("POST", origin))) << origin;
}

TEST(Access, AnyOriginGetsNoCredentials) {
  const Access access({}, "127.0.0.1", {}, {"*"});
  EXPECT_FALSE(access.Refuse(FromPage("POST", "https://other.example")));
  for (const auto& [name, value] : access.CorsHeaders(FromPage("POST", "https://other.example")))
    EXPECT_NE(name, "Access-Control-Allow-Credentials");
}

TEST(Access, HostsThatAreListed) {
  const Access access({}, "127.0.0.1", {"llm.local"});
  EXPECT_EQ(Status(access, {{"host", "llm.local:8080"}}), 200);
  EXPECT_EQ(Status(access, {{"host", "other.local"}}), 403);
  EXPECT_EQ(Status(Access({}, "127.0.0.1", {"*"}), {{"host", "other.local"}}), 200);
  // A page elsewhere stays a page elsewhere.
  EXPECT_EQ(Status(access, {{"host", "llm.local"}, {"origin", "https://other.local"}}), 403);
}

TEST(Access, TellsTheClientsOfSeveralKeysApart) {
  const auto client = [](const Access& access, const char* key) {
    HttpRequest head;
    head.headers["x-api-key"] = key;
    HttpRequest bearer;
    bearer.headers["authorization"] = std::string("Bearer ") + key;
    EXPECT_EQ(access.ClientOf(head), access.ClientOf(bearer));
    return access.ClientOf(head);
  };
  const Access two({"one", "two"}, "0.0.0.0");
  EXPECT_NE(client(two, "one"), client(two, "two"));
  EXPECT_NE(client(two, "one"), 0u);
  EXPECT_EQ(client(two, "one"),
            client(Access({"one", "three"}, "127.0.0.1"), "one"));  // files outlive servers
  EXPECT_EQ(client(Access({"one"}, "0.0.0.0"), "one"), 0u);
  EXPECT_EQ(client(Access({}, "127.0.0.1"), ""), 0u);
}

TEST(Access, WithoutAKeyOtherSitesAreRefused) {
  const Access access({}, "127.0.0.1");
  EXPECT_EQ(Status(access, {}), 200);
  for (const char* host : {"127.0.0.1:8080", "localhost", "localhost:8080", "[::1]:8080", "127.1.2.3"}) {
    EXPECT_EQ(Status(access, {{"host", host}}), 200) << host;
    EXPECT_EQ(Status(access, {{"host", host}, {"origin", "http://" + std::string(host)}}), 200) << host;
    EXPECT_EQ(Status(access, {{"host", host}, {"origin", "http://evil.example"}}), 403) << host;
    EXPECT_EQ(Status(access, {{"host", host}, {"origin", "null"}}), 403) << host;
  }
  EXPECT_EQ(Status(access, {{"host", "evil.example:8080"}}),
            403);  // a name that was made to mean this machine
  EXPECT_EQ(Status(access, {{"host", "127.evil.example"}}), 403);
  for (const auto& [site, status] :
       {std::pair("same-origin", 200), {"none", 200}, {"same-site", 403}, {"cross-site", 403}, {"x", 403}}) {
    EXPECT_EQ(Status(access, {{"host", "localhost"}, {"sec-fetch-site", site}}), status) << site;
    EXPECT_EQ(Status(Access({"key"}, "0.0.0.0"), {{"x-api-key", "key"}, {"sec-fetch-site", site}}), 200);
  }
}

}  // namespace
}  // namespace coppice
