// Checkpoints (ttr/checkpoint.h): "model.<parameter>" and "optimiser.<part>" as tensors; configurations, counts and the
// checksum as metadata.
#include "ttr/checkpoint.h"

#include <charconv>
#include <cstring>

#include "ttr/status.h"

namespace ttr::model {
namespace {

constexpr const char* mark = "ttr checkpoint 1";

template <class T>
const char* dtype_of() {
  return sizeof(T) == 4 ? "F32" : "F64";
}

template <class T>
void add(TensorFile& file, const std::string& name, std::vector<std::int64_t> shape, const T* numbers,
         std::size_t size) {
  StoredTensor tensor;
  tensor.name = name, tensor.dtype = dtype_of<T>(), tensor.shape = std::move(shape);
  tensor.bytes.resize(size * sizeof(T));
  std::memcpy(tensor.bytes.data(), numbers, tensor.bytes.size());
  file.tensors.push_back(std::move(tensor));
}

template <class T>
void take(const Checkpoint& from, const std::string& name, const std::vector<std::int64_t>& shape, T* numbers,
          std::size_t size) {
  const StoredTensor* const tensor = from.file.find(name);
  if (!tensor) throw Error(from.path + ": it has no tensor '" + name + "'", from.path);
  if (tensor->dtype != dtype_of<T>())
    throw Error(from.path + ": '" + name + "' is of type " + tensor->dtype + " where " + dtype_of<T>() + " is due",
                from.path);
  if (tensor->shape != shape || tensor->bytes.size() != size * sizeof(T))
    throw Error(from.path + ": '" + name + "' has another shape than here", from.path);
  std::memcpy(numbers, tensor->bytes.data(), tensor->bytes.size());
}

// FNV-1a of everything but the checksum itself.
std::uint64_t checksum(const TensorFile& file) {
  std::uint64_t sum = 0xCBF29CE484222325u;
  const auto add_byte = [&](unsigned char byte) { sum = (sum ^ byte) * 0x100000001B3u; };
  for (const StoredTensor& tensor : file.tensors) {
    for (const char c : tensor.name + tensor.dtype) add_byte(static_cast<unsigned char>(c));
    for (const std::int64_t n : tensor.shape)
      for (int i = 0; i < 8; ++i) add_byte(static_cast<unsigned char>(n >> 8 * i));
    for (const std::byte b : tensor.bytes) add_byte(static_cast<unsigned char>(b));
  }
  for (const auto& [key, value] : file.metadata) {
    if (key == "checksum") continue;
    for (const char c : key) add_byte(static_cast<unsigned char>(c));
    for (const char c : value) add_byte(static_cast<unsigned char>(c));
  }
  return sum;
}

template <class Number>
Number number_in(const Checkpoint& from, const std::string& key) {
  const auto found = from.file.metadata.find(key);
  Number number{};
  if (found != from.file.metadata.end()) {
    const std::string& text = found->second;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error == std::errc() && end == text.data() + text.size()) return number;
  }
  throw Error(from.path + ": its '" + key + "' is missing or no number", from.path);
}

}  // namespace

template <class T>
void save_checkpoint(const std::string& path, const Model<T>& model, Optimiser<T>* optimiser,
                     const Progress& progress) {
  TensorFile file;
  for (const Parameter& p : model.parameters())
    add(file, "model." + p.name, {p.extent.begin(), p.extent.end()}, model.values().data() + p.offset, p.size);
  file.metadata["format"] = mark;
  file.metadata["config"] = to_string(model.config());
  file.metadata["step"] = std::to_string(progress.step);
  file.metadata["random"] = std::to_string(progress.random);
  if (optimiser) {
    file.metadata["optimiser"] = to_string(optimiser->config());
    file.metadata["optimiser_steps"] = std::to_string(optimiser->steps_taken());
    for (const auto& part : optimiser->state())
      add<T>(file, "optimiser." + part.name, {static_cast<std::int64_t>(part.numbers.size())}, part.numbers.data(),
             part.numbers.size());
  }
  for (const auto& [key, value] : progress.notes) file.metadata["note." + key] = value;
  file.metadata["checksum"] = std::to_string(checksum(file));
  write_safetensors(path, file);
}

Checkpoint read_checkpoint(const std::string& path) {
  Checkpoint result;
  result.path = path;
  result.file = read_safetensors(path);
  const auto& metadata = result.file.metadata;
  const auto format = metadata.find("format");
  if (format == metadata.end())
    throw Error(path + ": it is a safetensors file, but no checkpoint of ttr: its metadata has no 'format'", path);
  if (format->second != mark)
    throw Error(path + ": its format is '" + format->second + "'; this version reads '" + mark + "'", path);
  if (number_in<std::uint64_t>(result, "checksum") != checksum(result.file))
    throw Error(path + ": its numbers do not have its checksum; it is damaged", path);
  const auto config = metadata.find("config");
  if (config == metadata.end()) throw Error(path + ": it has no configuration", path);
  result.config = parse_config(config->second);
  result.progress.step = number_in<std::int64_t>(result, "step");
  result.progress.random = number_in<std::uint64_t>(result, "random");
  if (const auto found = metadata.find("optimiser"); found != metadata.end()) {
    result.has_optimiser = true;
    result.optimiser = parse_optimiser(found->second);
    result.optimiser_steps = number_in<std::int64_t>(result, "optimiser_steps");
  }
  for (const auto& [key, value] : metadata)
    if (key.rfind("note.", 0) == 0) result.progress.notes[key.substr(5)] = value;
  return result;
}

template <class T>
void Checkpoint::load(Model<T>& model) const {
  for (const Parameter& p : model.parameters())
    take(*this, "model." + p.name, {p.extent.begin(), p.extent.end()}, model.values().data() + p.offset, p.size);
}
template <class T>
void Checkpoint::load(Optimiser<T>& to) const {
  if (!has_optimiser) throw Error(path + ": it has no state of an optimiser", path);
  if (to.config().method != optimiser.method)
    throw Error(path + ": its optimiser is " + optimiser.method + " and this one " + to.config().method, path);
  for (const auto& part : to.state())
    take(*this, "optimiser." + part.name, {static_cast<std::int64_t>(part.numbers.size())}, part.numbers.data(),
         part.numbers.size());
  to.set_steps_taken(optimiser_steps);
}

template <class T>
bool Checkpoint::load_mean(Model<T>& model) const {
  if (!file.find("optimiser.mean")) return false;
  take(*this, "optimiser.mean", {static_cast<std::int64_t>(model.values().size())}, model.values().data(),
       model.values().size());
  return true;
}

template void save_checkpoint<float>(const std::string&, const Model<float>&, Optimiser<float>*, const Progress&);
template void save_checkpoint<double>(const std::string&, const Model<double>&, Optimiser<double>*, const Progress&);
template void Checkpoint::load<float>(Model<float>&) const;
template void Checkpoint::load<double>(Model<double>&) const;
template void Checkpoint::load<float>(Optimiser<float>&) const;
template void Checkpoint::load<double>(Optimiser<double>&) const;
template bool Checkpoint::load_mean<float>(Model<float>&) const;
template bool Checkpoint::load_mean<double>(Model<double>&) const;

}  // namespace ttr::model
