// Where the references of a JSON schema lead: pointers, anchors, and schemas with an $id within it.
#pragma once

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace coppice {

class SchemaRefs {
 public:
  // `root` must outlive this object. `ref_is_alone`: what stands beside $ref says nothing, as in draft 7.
  explicit SchemaRefs(const nlohmann::ordered_json& root, bool ref_is_alone = false);

  // What `reference`, which stands in `schema`, refers to. Throws Error if that is not in the root.
  const nlohmann::ordered_json& Target(const nlohmann::ordered_json& schema,
                                       const nlohmann::ordered_json& reference) const;
  // The same for $dynamicRef: `scope` has the schemas that are being applied, the outermost first.
  const nlohmann::ordered_json& DynamicTarget(const nlohmann::ordered_json& schema,
                                              const nlohmann::ordered_json& reference,
                                              const std::vector<const nlohmann::ordered_json*>& scope) const;

  // Whether schemas in the root have an $id of their own; and whether `schema` is an object of the root.
  bool has_inner() const { return resources_.size() > 1; }
  // The most steps that one name of a reference takes: the members of the largest object, or the resources.
  size_t largest() const { return std::max(largest_, resources_.size()); }
  bool Knows(const nlohmann::ordered_json& schema) const { return resource_of_.contains(&schema); }

 private:
  struct Resource {
    std::string uri;
    const nlohmann::ordered_json* root = nullptr;
    std::map<std::string, const nlohmann::ordered_json*, std::less<>> anchors = {};
    std::map<std::string, const nlohmann::ordered_json*, std::less<>> dynamic_anchors = {};
  };

  void Collect(const nlohmann::ordered_json& value, size_t resource, int depth, bool is_schema);
  size_t ResourceOf(const nlohmann::ordered_json& schema) const;

  const nlohmann::ordered_json& root_;
  const bool ref_is_alone_;
  std::vector<Resource> resources_;
  size_t largest_ = 0;
  std::unordered_map<const nlohmann::ordered_json*, size_t> resource_of_;  // of each object
};

}  // namespace coppice
