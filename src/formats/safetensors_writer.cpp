#include "formats/safetensors_writer.h"

#include <functional>
#include <nlohmann/json.hpp>
#include <numeric>

#include "base/check.h"
#include "base/new_file.h"

namespace coppice {

void WriteSafetensors(const std::string& path, std::string_view part,
                      std::span<const SafetensorsEntry> tensors,
                      const std::map<std::string, std::string>& metadata) {
  nlohmann::ordered_json header;
  if (!metadata.empty()) header["__metadata__"] = metadata;
  uint64_t offset = 0;
  for (const SafetensorsEntry& tensor : tensors) {
    const int64_t count =
        std::accumulate(tensor.shape.begin(), tensor.shape.end(), int64_t{1}, std::multiplies<>());
    COPPICE_CHECK(static_cast<int64_t>(tensor.data.size()) == BytesOf(tensor.dtype, count));
    COPPICE_CHECK(Info(tensor.dtype).block_elements == 1 && !header.contains(tensor.name));
    header[tensor.name] = {{"dtype", Info(tensor.dtype).name},
                           {"shape", tensor.shape},
                           {"data_offsets", {offset, offset + tensor.data.size()}}};
    offset += tensor.data.size();
  }
  // A model's name may not be valid UTF-8. As in the safetensors library, the data starts at a multiple of 8.
  std::string text = header.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const uint64_t size = text.size();

  NewFile file(path, part);
  file.Append(std::as_bytes(std::span(&size, 1)));
  file.Append(text);
  for (const SafetensorsEntry& tensor : tensors) file.Append(tensor.data);
  file.Commit();
}

}  // namespace coppice
