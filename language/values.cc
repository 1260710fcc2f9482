#include "language/values.h"

#include <algorithm>

namespace ttr::model {

template <class T>
Values<T>::Values(const Graph& graph, std::span<const ScheduledStep> steps, Size piece) : graph_(graph) {
  place(steps, piece);
  for (const Node& node : graph.nodes) {
    std::vector<const T*> list;
    for (const Operand& operand : node.in) list.push_back(kept(operand.numbers));
    fixed_.push_back(std::move(list));
    bias_.push_back(kept(node.bias));
  }
}

template <class T>
const T* Values<T>::kept(const Numbers& numbers) {
  if (!numbers) return nullptr;
  std::vector<T>& to = parameters_[numbers.get()];
  if (to.empty()) to.assign(numbers->begin(), numbers->end());
  return to.data();
}

template <class T>
void Values<T>::place(std::span<const ScheduledStep> steps, Size piece) {
  const std::size_t count = graph_.nodes.size();
  std::vector<std::size_t> last(count, 0);  // the step that reads it last
  for (std::size_t s = 0; s < steps.size(); ++s)
    for (const std::size_t node : steps[s].nodes) {
      last[node] = std::max(last[node], s);
      for (const Operand& operand : graph_.nodes[node].in)
        if (operand.value.there()) {
          std::size_t& its = last[static_cast<std::size_t>(operand.value.node)];
          its = std::max(its, s);
        }
    }
  last[static_cast<std::size_t>(graph_.hidden.node)] = steps.size();
  places_.resize(count);
  std::multimap<Size, T*> free;
  std::vector<std::vector<std::pair<Size, T*>>> ends(steps.size() + 1);
  for (std::size_t s = 0; s < steps.size(); ++s) {
    for (const std::size_t node : steps[s].nodes)
      for (const Size width : graph_.nodes[node].widths) {
        const auto found = free.lower_bound(width);
        T* place = nullptr;
        Size size = width;
        if (found != free.end() && found->first <= 2 * width) {
          size = found->first, place = found->second;
          free.erase(found);
        } else {
          buffers_.emplace_back(piece * width);
          place = buffers_.back().data();
        }
        places_[node].push_back(place);
        ends[last[node]].emplace_back(size, place);
      }
    // A step reads its operands while it writes: what ends here is free for the next one.
    for (const auto& end : ends[s]) free.insert(end);
  }
}

template <class T>
std::size_t Values<T>::bytes() const {
  std::size_t sum = 0;
  for (const auto& buffer : buffers_) sum += static_cast<std::size_t>(buffer.size()) * sizeof(T);
  for (const auto& [from, numbers] : parameters_) sum += numbers.size() * sizeof(T);
  return sum;
}

template class Values<float>;
template class Values<double>;

}  // namespace ttr::model
