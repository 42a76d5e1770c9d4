#include "policies/methods/head_patterns.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "base/mmap.h"
#include "formats/json.h"
#include "policies/keys.h"

namespace coppice {

namespace {

using nlohmann::json;

constexpr std::string_view kFormat = "coppice head patterns";
constexpr int64_t kVersion = 1;
constexpr size_t kMaxFileBytes = size_t{16} << 20;
constexpr size_t kMaxValues = 2'000'000;
constexpr float kAlways = std::numeric_limits<float>::infinity();

const json& At(const json& object, const char* name, const std::string& source) {
  const auto found = object.find(name);
  if (found == object.end()) throw Error("[minference] {}: {} is missing", source, name);
  return *found;
}

int64_t Whole(const json& value, const std::string& source, const std::string& where, int64_t low) {
  if (!value.is_number_integer() || value < low || value > kManyTokens) {
    throw Error("[minference] {}: {} is no whole number from {} to {}", source, where, low, kManyTokens);
  }
  return value;
}

HeadPattern ParseHead(const json& value, const std::string& source, const std::string& where) {
  if (!value.is_array() || value.empty() || !value.front().is_string())
    throw Error("[minference] {}: {} is no list that begins with a pattern's name", source, where);
  const auto kind =
      std::find(kPatternNames.begin(), kPatternNames.end(), value.front().get_ref<const std::string&>());
  if (kind == kPatternNames.end())
    throw Error("[minference] {}: {}[0] is none of {}", source, where, fmt::join(kPatternNames, ", "));
  HeadPattern head = LeastPattern(static_cast<PatternKind>(kind - kPatternNames.begin()));
  const size_t sizes = head.kind == PatternKind::kBlockSparse ? 1 : 2;
  if (value.size() != sizes + 1)
    throw Error("[minference] {}: {} has {} sizes instead of {}", source, where, value.size() - 1, sizes);
  head.first = Whole(value[1], source, where + "[1]", head.first);
  if (sizes == 2) head.second = Whole(value[2], source, where + "[2]", head.second);
  return head;
}

// The block diagonals (key block - query block) that these diagonals cross, each once.
std::vector<int64_t> BlockDiagonalsOf(const BlockGrid& grid, const std::vector<int32_t>& diagonals) {
  std::vector<int64_t> crossed;
  for (const int32_t d : diagonals) {
    const BlockGrid::Place place = grid.PlaceOf(d);
    crossed.push_back(place.first);
    if (place.second_share > 0) crossed.push_back(place.first + 1);
  }
  std::sort(crossed.begin(), crossed.end());
  crossed.erase(std::unique(crossed.begin(), crossed.end()), crossed.end());
  return crossed;
}

// The key blocks of every query block b: `mark` sets the chosen ones in [key blocks].
template <typename Mark>
std::vector<std::vector<int32_t>> BlocksOf(const BlockGrid& grid, const Mark& mark) {
  std::vector<std::vector<int32_t>> blocks;
  std::vector<uint8_t> marks(static_cast<size_t>(grid.key_blocks()));
  for (int64_t b = 0; b < grid.query_blocks(); ++b) {
    std::fill(marks.begin(), marks.end(), uint8_t{0});
    mark(b, marks);
    blocks.push_back(KeyBlocksOf(grid, b, marks));
  }
  return blocks;
}

}  // namespace

HeadPattern LeastPattern(PatternKind kind) {
  switch (kind) {
    case PatternKind::kVerticalSlash:
      return {kind, HeadPattern::kSinkColumns, HeadPattern::kLocalDiagonals};
    case PatternKind::kBlockSparse:
      return {kind, 2, 0};
    case PatternKind::kAShape:
      break;
  }
  return {kind, 1, 1};
}

int64_t HeadPatterns::LeastReach() const {
  int64_t least = std::numeric_limits<int64_t>::max();
  for (const std::vector<HeadPattern>& layer : heads) {
    for (const HeadPattern& head : layer) least = std::min(least, head.Reach());
  }
  return least;
}

HeadPatterns ParseHeadPatterns(std::string_view text, const std::string& source, const ModelShape& shape) {
  const json file = ParseJson(text, source, kMaxValues);
  if (!file.is_object() || At(file, "format", source) != kFormat)
    throw Error("[minference] {}: format is not '{}'", source, kFormat);
  if (At(file, "version", source) != kVersion)
    throw Error("[minference] {}: version is not {}, the only one that this program reads", source, kVersion);
  HeadPatterns patterns;
  const json& model = At(file, "model", source);
  if (!model.is_string()) throw Error("[minference] {}: model is no text", source);
  patterns.model = model;
  patterns.tokens = Whole(At(file, "tokens", source), source, "tokens", 1);
  patterns.budget = Whole(At(file, "budget", source), source, "budget", 1);
  const json& layers = At(file, "heads", source);
  if (!layers.is_array() || layers.size() != static_cast<size_t>(shape.layer_count()))
    throw Error("[minference] {}: heads is no list of the model's {} layers", source, shape.layer_count());
  for (size_t l = 0; l < layers.size(); ++l) {
    const int heads = shape.layers[l].heads;
    if (!layers[l].is_array() || layers[l].size() != static_cast<size_t>(heads))
      throw Error("[minference] {}: heads[{}] is no list of the model's {} heads", source, l, heads);
    std::vector<HeadPattern>& layer = patterns.heads.emplace_back();
    for (size_t h = 0; h < layers[l].size(); ++h)
      layer.push_back(ParseHead(layers[l][h], source, fmt::format("heads[{}][{}]", l, h)));
  }
  return patterns;
}

std::shared_ptr<const HeadPatterns> ReadHeadPatterns(const std::string& path, const ModelShape& shape) {
  const MappedFile file(path);
  if (file.size() > kMaxFileBytes)
    throw Error("[minference] {}: has {} bytes, more than {}", path, file.size(), kMaxFileBytes);
  const std::string_view text(reinterpret_cast<const char*>(file.bytes().data()), file.size());
  return std::make_shared<const HeadPatterns>(ParseHeadPatterns(text, path, shape));
}

std::string TextOf(const HeadPatterns& patterns) {
  std::string text = fmt::format(
      "{{\n  \"format\": \"{}\",\n  \"version\": {},\n  \"model\": {},\n  \"tokens\": {},\n  \"budget\": "
      "{},\n"
      "  \"heads\": [",
      kFormat, kVersion, json(patterns.model).dump(-1, ' ', true, json::error_handler_t::replace),
      patterns.tokens, patterns.budget);
  for (size_t l = 0; l < patterns.heads.size(); ++l) {
    json layer = json::array();
    for (const HeadPattern& head : patterns.heads[l]) {
      json entry = {std::string(kPatternNames[static_cast<size_t>(head.kind)]), head.first};
      if (head.kind != PatternKind::kBlockSparse) entry.push_back(head.second);
      layer.push_back(std::move(entry));
    }
    text += fmt::format("{}\n    {}", l == 0 ? "" : ",", layer.dump());
  }
  return text + "\n  ]\n}\n";
}

SparsePattern::Head VerticalSlashHead(LineMass mass, int64_t columns, int64_t diagonals,
                                      const BlockGrid& grid, Backend& be) {
  const auto first_columns = std::min(HeadPattern::kSinkColumns, grid.keys);
  const auto first_diagonals = std::min(HeadPattern::kLocalDiagonals, grid.keys);
  std::fill_n(mass.columns.begin(), first_columns, kAlways);
  std::fill_n(mass.diagonals.begin(), first_diagonals, kAlways);
  SparsePattern::Head chosen;
  chosen.columns = be.TopK(RowView(mass.columns), std::min(columns, grid.keys)).ToRows();
  const std::vector<int32_t> best = be.TopK(RowView(mass.diagonals), std::min(diagonals, grid.keys)).ToRows();
  const std::vector<int64_t> crossed = BlockDiagonalsOf(grid, best);
  chosen.key_blocks = BlocksOf(grid, [&](int64_t b, std::vector<uint8_t>& marks) {
    for (const int64_t diagonal : crossed) {
      const int64_t j = b + diagonal;
      if (j >= 0 && j < grid.key_blocks()) marks[static_cast<size_t>(j)] = 1;
    }
  });
  return chosen;
}

SparsePattern::Head BlockSparseHead(Tensor map, int64_t blocks, const BlockGrid& grid, Backend& be) {
  SparsePattern::Head chosen;
  chosen.key_blocks = BlocksOf(grid, [&](int64_t b, std::vector<uint8_t>& marks) {
    const std::span<float> row =
        map.mutable_view().Row<float>(b).first(static_cast<size_t>(grid.LastDiagonal(b) + 1));
    row.front() = kAlways;
    std::fill(row.begin() + grid.FirstDiagonal(b), row.end(), kAlways);
    for (const int32_t j : be.TopK(RowView(row), blocks).ToRows()) marks[static_cast<size_t>(j)] = 1;
  });
  return chosen;
}

SparsePattern::Head AShapeHead(int64_t first, int64_t nearest, const BlockGrid& grid) {
  const auto blocks_of = [&](int64_t keys) { return (keys + grid.block - 1) / grid.block; };
  SparsePattern::Head chosen;
  chosen.key_blocks = BlocksOf(grid, [&](int64_t b, std::vector<uint8_t>& marks) {
    const int64_t last = grid.LastDiagonal(b);
    const int64_t from = std::max<int64_t>(0, grid.FirstDiagonal(b) + 1 - blocks_of(nearest));
    std::fill(marks.begin() + from, marks.begin() + last + 1, uint8_t{1});
    std::fill_n(marks.begin(), std::min(blocks_of(first), last + 1), uint8_t{1});
  });
  return chosen;
}

SparsePattern::Head DenseHead(const BlockGrid& grid) { return AShapeHead(grid.keys, grid.keys, grid); }

}  // namespace coppice
