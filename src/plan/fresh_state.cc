#include "plan/fresh_state.h"

#include <type_traits>

namespace ttr {

template <class T>
std::span<const T> FreshState::numbers(const std::string& name) const {
  Made<T>* made = nullptr;
  if constexpr (std::is_same_v<T, float>) made = &floats_;
  else made = &doubles_;
  std::call_once(made->once, [&] {
    std::map<std::string, std::size_t> size;
    for (const oracle::StateShape& shape : oracle::state_shapes(design_)) {
      std::size_t& all = size[shape.name] = 1;
      for (const std::int64_t extent : oracle::fresh_extents(design_, sizes_, shape))
        all *= static_cast<std::size_t>(extent);
    }
    oracle::fresh_numbers(design_, sizes_, [&](const std::string& of, std::size_t first, std::span<const double> x) {
      std::vector<T>& to = made->arrays[of];
      if (to.empty()) to.resize(size.at(of));
      T* const at = to.data() + first;
      for (std::size_t i = 0; i < x.size(); ++i) at[i] = static_cast<T>(x[i]);
    });
  });
  const auto found = made->arrays.find(name.starts_with("start_") ? name.substr(6) : name);
  return found == made->arrays.end() ? std::span<const T>() : std::span<const T>(found->second);
}
template std::span<const float> FreshState::numbers<float>(const std::string&) const;
template std::span<const double> FreshState::numbers<double>(const std::string&) const;

}  // namespace ttr
