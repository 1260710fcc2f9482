// Named layers on a stream: what they are given besides keys and values.
//
// A layer whose recipe is all of it runs as that recipe, its gates and steps as constants (plan/text.cc). The layers of
// the table below are more than their recipe, or have inputs that no constant of a recipe replaces: they run as they
// are, and each of their inputs comes from the row or is the same for all rows. The table is the one place that says so.
//
//   query, key, value     of the row; with a number in front so many times that, `unit`: of length one, `+ a`: a added to
//                         every entry
//   a number, log a       the same for every row, token and channel
//   identity, random      a matrix [.., M, K]: ones on the diagonal; normal numbers of a fixed seed
//   cosine                a matrix [K, M] of orthonormal cosines (DCT-II), one column per feature
//   scores, shares        a fixed random map of the unit key, and its softmax: a number per slot
//
// Factors on older pairs are 0.98 for sums and 0.99 for step rules. Sums have keys of length one and values times 0.02
// = 1 - 0.98: they answer with a mean, as the step `auto` of other layers does. Step rules have keys of length one and
// half steps, in two steps per row twice 0.29289322 = 1 - sqrt(0.5). longhorn-shipped steps in every channel as if it
// were alone, so its steps are small, sigmoid(-2). silu(1.2784645) = 1 opens an output gate. hgrn-2 writes where its
// gate closes, so its gate is the key with the other sign. Queries are not scaled by 1 / sqrt(K): a value is wanted, not
// a logit. Random features are 64, because a mean of as few as K of them is far from its kernel.
//
// rebased weighs by (q.k)^2, which cannot tell a key from the opposite one and so learns nothing of a linear relation; the
// shift of its layer norm, here 1/2, is what makes it see the sign. moneta answers with A / |A|^2, and A settles at a size
// like eta / (1 - e^g) times the square of the values: its answers fit values of one size alone, and grow without bound
// for smaller ones, because a step that makes A smaller makes the answer larger. Its constants fit values of about a half,
// so that answers to larger ones are too small and nothing explodes. lact learns by products of answers and values, which
// say nothing of the answers' size, and its orthogonalised step has one size whatever its rates are: keys of 3/4 of their
// length, of entries of about one, give answers of the size of the values; a momentum of 0.9 is a mean over ten steps.
#include <algorithm>
#include <cmath>

#include "plan/text.h"
#include "recipe/text_tools.h"
#include "ttr/stream.h"

namespace ttr {
namespace {

struct Row {
  const char* layer;
  const char* settings;  // beside the user's
  const char* inputs;    // null: refused
  const char* why = "";
};
constexpr Row rows[] = {
    {"rebased", "", "q=query + 0.5, k=key + 0.5, v=value"},
    {"t2r", "features=64", "q=query, k=key, v=value, W=random, b=0"},
    {"hedgehog", "", "q=query, k=key, v=value, W=identity, b=0"},
    {"performer", "features=64", "q=query, k=key, v=value, W=random"},
    {"rfa", "features=64", "q=unit query, k=unit key, v=value, W=random"},
    {"gated-rfa", "features=64", "q=unit query, k=unit key, v=value, W=random, g=log 0.98"},
    {"dijiang", "", "q=query, k=key, v=value, P=cosine"},
    {"mlstm", "", "q=unit query, k=unit key, v=value, i=log 0.02, f=3.8918203"},  // sigmoid(f) = 0.98
    {"gateloop", "", "q=unit query, k=unit key, v=0.02 value, la=log 0.98, theta=0"},
    {"hgrn-2", "", "q=query, f=-1 key, i=value, lower_bound=0.9"},
    {"rwkv-6", "", "r=unit query, k=unit key, v=0.02 value, w=log 0.98, u=1"},
    {"log-linear-attention", "levels=40", "q=unit query, k=unit key, v=0.02 value, g=log 0.98, level_scales=1"},
    {"gated-slot-attention", "", "q=query, k=key, v=value, s=shares, g=log 0.98"},
    {"abc", "", "q=query, k=key, v=value, s=scores"},
    {"mamba-1", "", "u=value, delta=-3.9019387, A=-1, B=unit key, C=unit query, D=0, z=1.2784645, delta_bias=0"},
    {"signed-mamba-1", "",  // 2 exp(-softplus(delta)) - 1 = 0.98
     "u=value, delta=-4.5951199, A=-1, B=unit key, C=unit query, D=0, z=1.2784645, delta_bias=0"},
    {"signed-mamba-2", "", "x=value, dt=0.02, A=-0.50251679, B=unit key, C=unit query, D=0"},
    {"signed-gla", "", "q=unit query, k=unit key, v=0.02 value, gk=log 0.99"},
    {"mamba-3", "",
     "q=unit query, k=unit key, v=value, adt=log 0.98, dt=0.02, trap=0, q_bias=0, k_bias=0, angles=0, D=0, "
     "z=1.2784645"},
    {"longhorn-shipped", "", "x=value, q=unit query, k=unit key, beta_raw=-2, beta_bias=0, D=0, z=1.2784645"},
    {"gdn-2", "", "q=unit query, k=unit key, v=value, g=log 0.99, b=0.5, w=0.5"},
    {"comba", "", "q=unit query, k=unit key, v=value, p=unit key, beta=0.5, g=log 0.99"},
    {"preconditioned-deltanet", "",
     "q=unit query, k=unit key, v=value, g=log 0.99, g_atk=log 0.99, beta_atk=0.5, beta=0.5, log_atk_scale=0"},
    {"preconditioned-kda", "",
     "q=unit query, k=unit key, v=value, g=log 0.99, g_atk=log 0.99, beta_atk=0.5, beta=0.5, log_atk_scale=0"},
    {"momentum-deltanet", "",
     "q=unit query, k=unit key, v=value, p=unit key, g=log 0.99, g_mu=log 0.5, beta=0.5, eta=0.5"},
    {"deltaproduct", "", "q=unit query, k=unit key, v=value, beta=0.29289322"},
    {"gated-deltaproduct", "", "q=unit query, k=unit key, v=value, beta=0.29289322, g=log 0.99"},
    {"dplr", "", "q=unit query, k=unit key, v=0.5 value, a=unit key, b=-0.5 unit key, gk=log 0.99"},
    {"iplr", "", "q=unit query, k=unit key, v=0.5 value, a=unit key, b=-0.5 unit key"},
    {"rwkv-7", "", "r=unit query, w=log 0.99, k_raw=unit key, v=value, a=0.5, k_k=1, k_a=1, r_k=0"},
    {"unnormalised-softmax", "window=50", "q=unit query, k=unit key, v=0.02 value"},
    {"lact", "batch=16", "q=0.75 query, k=0.75 key, v=value, lr0=0.05, lr1=0.05, lr2=0.05, mom=0.9"},
    {"moneta", "", "q=unit query, k=unit key, v=value, g=log 0.95, eta=0.5"},
    {"gated-kalmanet", "", "q=query, k=key, v=value, g=log 0.98, gk=log 0.98, alpha=1"},
    {"cosformer", "", nullptr,
     "weighs pairs by their distance as a part of a length that is known beforehand, and a stream has none; of one "
     "whose "
     "length is known write the recipe, 'equal / linear(cosformer, length=10000) / gd(1) | normalise(keysum, "
     "eps=1e-6)'"},
    {"parallax", "", nullptr,
     "needs the slope at every row as an input; on a stream local-linear-attention solves for it, and without it "
     "parallax is softmax-attention"},
    {"path-attention", "", nullptr,
     "turns every pair by maps of all the later ones, so it would keep every row of a stream, and it has no window"},
    {"deltaformer", "", nullptr,
     "corrects every value by all earlier ones, so it would keep every row of a stream, and it has no window"},
};

// What the map of a recipe reads beside keys: no row has it, and it is the same for all of them, so a stream can have it.
// As the layers of these maps have it above.
struct MapRow {
  const char* word;
  const char* inputs;
};
constexpr MapRow map_rows[] = {{"hedgehog", "W=identity, b=0"},
                               {"hedgehog_exp", "W=identity, b=0"},
                               {"hedgehog_softmax2", "W=identity, b=0"},
                               {"t2r", "W=random, b=0"},
                               {"favor", "W=random"},
                               {"favor_relu", "W=random"},
                               {"rfa", "W=random"},
                               {"dijiang", "P=cosine"},
                               {"rebased", "gamma=1, shift=0.5"}};

std::string_view inputs_of_map(const Term& memory) {
  for (const MapRow& row : map_rows)
    if (memory.word == "linear" && memory.has(row.word)) return row.inputs;
  return "";
}

std::string_view word_of(std::string_view& text) {
  text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
  const std::string_view word = text.substr(0, text.find(' '));
  text.remove_prefix(word.size());
  return word;
}

StreamInput read_input(std::string_view text) {
  using Source = StreamInput::Source;
  constexpr std::pair<std::string_view, Source> sources[] = {
      {"query", Source::query},       {"key", Source::key},       {"value", Source::value},
      {"identity", Source::identity}, {"random", Source::random}, {"cosine", Source::cosine},
      {"scores", Source::scores},     {"shares", Source::shares}};
  text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
  StreamInput input;
  const std::size_t equals = text.find('=');
  input.name = text.substr(0, equals);
  input.words = text.substr(equals + 1);
  text.remove_prefix(equals + 1);
  input.source = Source::number;
  while (!text.empty()) {
    const std::string_view word = word_of(text);
    if (word == "unit") input.unit = true;
    else if (word == "+") input.shift = *read_number<double>(std::string(word_of(text)));
    else if (word == "log") input.number = std::log(*read_number<double>(std::string(word_of(text))));
    else if (const auto number = read_number<double>(std::string(word))) input.number = *number;
    for (const auto& [name, source] : sources)
      if (word == name) input.source = source;
  }
  return input;
}

std::vector<StreamInput> read_inputs(std::string_view text) {
  std::vector<StreamInput> inputs;
  while (!text.empty()) {
    const std::size_t comma = std::min(text.find(','), text.size());
    inputs.push_back(read_input(text.substr(0, comma)));
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  return inputs;
}

bool map_has(const Term& memory, std::string_view input) {
  const std::vector<StreamInput> inputs = read_inputs(inputs_of_map(memory));
  return std::any_of(inputs.begin(), inputs.end(), [&](const StreamInput& i) { return i.name == input; });
}

}  // namespace

StreamText stream_layer(std::string_view text) {
  StreamText result;
  const LayerText read = read_layer_text(text);
  for (const Row& row : rows) {
    if (!read.layer || read.layer->info.name != row.layer) continue;
    if (!row.inputs) throw Error(std::string(row.layer) + " " + row.why, "layer " + std::string(text));
    result.text = text;
    if (*row.settings && !read.settings.contains(std::string(row.settings, std::string_view(row.settings).find('='))))
      result.text += (read.settings.empty() ? ":" : ",") + std::string(row.settings);
    const LayerText changed = read_layer_text(result.text);
    Recipe recipe = changed.recipe;
    apply_settings(recipe, changed.layer, changed.settings);
    result.recipe = to_string(recipe);
    result.as_layer = true;
    result.inputs = read_inputs(row.inputs);
    return result;
  }
  result.text = result.recipe = stream_recipe(text, &result.changes, map_has);
  using Source = StreamInput::Source;
  result.inputs = {{"q", Source::query, 1, 0, false, "query"},
                   {"k", Source::key, 1, 0, false, "key"},
                   {"v", Source::value, 1, 0, false, "value"}};
  const Term memory = parse_recipe(result.recipe).memory;
  for (StreamInput& input : read_inputs(inputs_of_map(memory))) {
    result.changes.push_back(input.name + " of the feature map is " + input.words + " for all rows");
    result.inputs.push_back(std::move(input));
  }
  return result;
}

std::string why_not_on_a_stream(std::string_view layer) {
  try {
    stream_layer(layer);
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

}  // namespace ttr
