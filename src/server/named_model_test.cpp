#include "server/named_model.h"

#include <gtest/gtest.h>

namespace coppice {
namespace {

TEST(NamedModel, IsTheOuterObjectsMember) {
  EXPECT_EQ(ModelMember(R"({"model": "a b", "n": 1})"), "a b");
  EXPECT_EQ(ModelMember(R"({"n": [1, {"model": "inner"}], "model": "outer"})"), "outer");
  EXPECT_EQ(ModelMember(R"({"a": {"model": "inner"}})"), "");
  EXPECT_EQ(ModelMember(R"({"model": {"model": "deeper"}})"), "");
  EXPECT_EQ(ModelMember(R"({"model": ["x"], "n": 2})"), "");
  EXPECT_EQ(ModelMember(R"({"model": 7})"), "");
  EXPECT_EQ(ModelMember(R"(["model", "x"])"), "");
  EXPECT_EQ(ModelMember(R"("model")"), "");
  EXPECT_EQ(ModelMember(""), "");
}

// The rest of the text does not matter: the model's server reads it.
TEST(NamedModel, StopsBehindTheMember) {
  EXPECT_EQ(ModelMember(R"({"model": "a", broken)"), "a");
  EXPECT_EQ(ModelMember(R"({broken, "model": "a"})"), "");
  EXPECT_EQ(ModelMember(std::string(1 << 20, '[')), "");
  std::string deep = R"({"x": )" + std::string(1 << 20, '[');
  EXPECT_EQ(ModelMember(deep), "");
}

TEST(NamedModel, OrTheQuerys) {
  EXPECT_EQ(QueryValue("action=save&model=a%20b%2Fc", "model"), "a b/c");
  EXPECT_EQ(QueryValue("models=x&model=", "model"), "");
  EXPECT_EQ(QueryValue("model=%4", "model"), "%4");
  EXPECT_EQ(QueryValue("model=%zz+", "model"), "%zz ");
  HttpRequest request;
  request.body = R"({"model": "body"})";
  EXPECT_EQ(NamedModel(request), "body");
  request.query = "model=query";
  EXPECT_EQ(NamedModel(request), "query");
}

}  // namespace
}  // namespace coppice
