#include "language/weights.h"

#include <algorithm>
#include <filesystem>
#include <set>

#include "recipe/text_tools.h"
#include "ttr/safetensors.h"

namespace ttr::model {
namespace fs = std::filesystem;
namespace {

std::optional<Stored> type_of_dtype(const std::string& dtype) {
  if (dtype == "F32") return Stored::f32;
  if (dtype == "F16") return Stored::f16;
  if (dtype == "BF16") return Stored::bf16;
  return {};
}

std::string text_of(const std::string& path) {
  const MappedFile file(path);
  if (file.bytes().size() > (std::size_t{1} << 26))
    throw Error("'" + path + "' has " + std::to_string(file.bytes().size()) + " bytes; at most 2^26 are read", path);
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

}  // namespace

std::int64_t Weight::numbers() const {
  std::int64_t n = 1;
  for (const std::int64_t extent : shape) n *= extent;
  return n;
}
std::string Weight::shape_text() const {
  std::string text = "[";
  for (const std::int64_t extent : shape) text += (text.size() > 1 ? ", " : "") + std::to_string(extent);
  return text + "]";
}

Weights::Weights(const std::string& path) : path_(path) {
  std::error_code failed;
  if (fs::is_directory(path, failed)) {
    folder_ = path;
    const auto inside = [&](const std::string& name) { return (fs::path(path) / name).string(); };
    std::vector<std::string> ggufs;
    for (const auto& entry : fs::directory_iterator(path, failed))
      if (entry.path().extension() == ".gguf") ggufs.push_back(entry.path().string());
    if (fs::exists(inside("model.safetensors.index.json"), failed))
      open_shards(inside("model.safetensors.index.json"));
    else if (fs::exists(inside("model.safetensors"), failed)) open_safetensors(inside("model.safetensors"));
    else if (ggufs.size() == 1) open_gguf(ggufs[0]);
    else
      throw Error("the folder '" + path + "' has no model.safetensors, no model.safetensors.index.json and " +
                      (ggufs.empty() ? "no .gguf file" : "several .gguf files; name one of them"),
                  path);
  } else {
    if (!fs::exists(path, failed)) throw Error("there is no file or folder '" + path + "'", path);
    folder_ = fs::path(path).parent_path().string();
    if (folder_.empty()) folder_ = ".";
    const std::string ending = fs::path(path).extension().string();
    const std::string name = fs::path(path).filename().string();
    if (ending == ".pth" || ending == ".pt" || ending == ".bin")
      throw Error("'" + path + "' is a pickle of PyTorch, which may run programs when it is read; " +
                      "scripts/pth-to-safetensors.py converts it without doing so",
                  path);
    bool magic = false;
    {
      const MappedFile file(path);
      const auto bytes = file.bytes();
      magic = bytes.size() >= 4 && std::to_integer<char>(bytes[0]) == 'G' && std::to_integer<char>(bytes[1]) == 'G' &&
              std::to_integer<char>(bytes[2]) == 'U' && std::to_integer<char>(bytes[3]) == 'F';
    }
    if (magic || ending == ".gguf") open_gguf(path);
    else if (name.size() > 11 && name.rfind(".index.json") == name.size() - 11) open_shards(path);
    else open_safetensors(path);
  }
  if (gguf_ || kept_) return;
  if (const std::string config = beside("config.json"); !config.empty())
    settings_ = Settings::from_json(text_of(config), config);
}

std::string Weights::beside(const std::string& name) const {
  const fs::path path = fs::path(folder_) / name;
  std::error_code failed;
  return fs::is_regular_file(path, failed) ? path.string() : std::string();
}

bool Weights::reads(const std::string& path) const {
  std::error_code failed;
  for (const std::string& one : paths_)
    if (fs::equivalent(one, path, failed)) return true;
  return false;
}

void Weights::add(Weight weight) {
  const std::string name = weight.name;
  if (!weights_.emplace(name, std::move(weight)).second)
    throw Error("'" + path_ + "' has the tensor '" + name + "' twice", name);
}

void Weights::open_safetensors(const std::string& path) {
  files_.push_back(std::make_unique<MappedFile>(path)), paths_.push_back(path);
  const auto bytes = files_.back()->bytes();
  for (TensorPlace& place : list_safetensors(bytes, path)) {
    Weight weight;
    weight.name = std::move(place.name), weight.dtype = std::move(place.dtype), weight.shape = std::move(place.shape);
    weight.type = type_of_dtype(weight.dtype);
    weight.data = bytes.data() + place.begin, weight.bytes = place.bytes;
    add(std::move(weight));
  }
}

void Weights::open_shards(const std::string& index) {
  const Settings list = Settings::from_json(text_of(index), index);
  std::map<std::string, std::string> places;
  std::set<std::string> names;
  const std::string before = "weight_map.";
  for (const auto& [key, value] : list.all()) {
    if (key.rfind(before, 0) != 0) continue;
    const auto* const file = std::get_if<std::string>(&value);
    if (!file || file->empty() || file->find('/') != std::string::npos || *file == "..")
      throw Error(index + ": '" + key + "' is not the name of a file in the same folder", key);
    places[key.substr(before.size())] = *file;
    names.insert(*file);
  }
  if (places.empty()) throw Error(index + ": it has no weight_map", index);
  for (const std::string& name : names) {
    if (beside(name).empty()) throw Error(index + ": it names the file '" + name + "', which is not there", name);
    open_safetensors(beside(name));
  }
  for (const auto& [name, file] : places)
    if (!find(name)) throw Error(index + ": the tensor '" + name + "' is not in '" + file + "'", name);
}

void Weights::open_gguf(const std::string& path) {
  gguf_ = true;
  settings_ = Settings(path);
  files_.push_back(std::make_unique<MappedFile>(path)), paths_.push_back(path);
  std::vector<Weight> list;
  read_gguf(files_.back()->bytes(), path, list, settings_);
  for (Weight& weight : list) add(std::move(weight));
  // What quantise() wrote of other files: their names and configuration (quantise.cc).
  if (settings_.text("general.architecture", "") != "ttr") return;
  gguf_ = false, kept_ = settings_;
  tokenizer_ = settings_.text("ttr.tokenizer", "");
  settings_ = settings_.has("ttr.config") ? Settings::from_json(settings_.text("ttr.config"), path) : Settings(path);
}

const Weight* Weights::find(const std::string& name) const {
  const auto found = weights_.find(name);
  return found == weights_.end() ? nullptr : &found->second;
}
const Weight& Weights::get(const std::string& name) const {
  if (const Weight* const weight = find(name)) return *weight;
  std::vector<std::string> names;
  for (const auto& [other, weight] : weights_)
    if (names.size() < 4096) names.push_back(other);
  const std::string nearest = nearest_word(name, names);
  throw Error(
      "'" + path_ + "' has no tensor '" + name + "'" + (nearest.empty() ? "" : "; there is '" + nearest + "'"), name);
}

std::size_t Weights::bytes() const {
  std::size_t sum = 0;
  for (const auto& [name, weight] : weights_) sum += weight.bytes;
  return sum;
}

}  // namespace ttr::model
