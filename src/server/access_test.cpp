#include "server/access.h"

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
