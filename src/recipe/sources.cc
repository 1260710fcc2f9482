// Where the words of recipes are from: the one table that `derive`, the pages of the layers and docs/recipes.md print.
//
// "textbook" is said of what is older than these layers, with who is first credited with it. A row without a word is
// for the option of that name of every word of the axis that has no row of its own; an option without a source has
// that of its word, of which most are numbers (how many steps, how wide). Every word and option has a row, and every
// row is of one (tests/recipe_test.cc).
#include "recipe/markup.h"
#include "recipe/words.h"
#include "ttr/origins.h"

namespace ttr {
namespace {

constexpr Axis weights = Axis::weights, memory = Axis::memory, solver = Axis::solver, extra = Axis::extra;

constexpr std::string_view gated_kalmanet = "Peng, Chattopadhyay et al. 2025, arXiv 2511.21016 (Gated KalmaNet)";
constexpr std::string_view gla = "Yang, Wang, Shen, Panda, Kim 2023, arXiv 2312.06635 (GLA)";
constexpr std::string_view hedgehog = "Zhang, Bhatia, Kumbong, Re 2024, arXiv 2402.04347 (Hedgehog)";
constexpr std::string_view linear_attention = "Katharopoulos, Vyas, Pappas, Fleuret 2020, arXiv 2006.16236";
constexpr std::string_view lms =
    "textbook (LMS, Widrow, Hoff 1960); in a layer Schlag, Irie, Schmidhuber 2021, arXiv 2102.11174";
constexpr std::string_view matern = "textbook (Matern 1960)";
constexpr std::string_view miras = "Behrouz, Razaviyayn, Zhong, Mirrokni 2025, arXiv 2504.13173 (Moneta)";
constexpr std::string_view mlstm = "Beck et al. 2024, arXiv 2405.04517 (mLSTM)";
constexpr std::string_view performer = "Choromanski et al. 2020, arXiv 2009.14794 (Performer)";
constexpr std::string_view rwkv_4 = "Peng et al. 2023, arXiv 2305.13048 (RWKV-4)";
constexpr std::string_view smoothing = "textbook (Nadaraya 1964; Watson 1964)";
constexpr std::string_view ttt = "Sun et al. 2024, arXiv 2407.04620 (TTT)";

constexpr SourceRow table[] = {
    {weights, "equal", "", "textbook (least squares, Legendre 1805)"},
    {weights, "decay", "",
     "textbook (exponential forgetting; Haykin, Adaptive Filter Theory); in a layer Sun et al. 2023, "
     "arXiv 2307.08621 (RetNet)"},
    {weights, "gate", "", "Peng et al. 2021, arXiv 2103.02143 (RFA); Dao, Gu 2024, arXiv 2405.21060 (Mamba-2)"},
    {weights, "gate", "key", gla},
    {weights, "gate", "value", gla},
    {weights, "gate", "full", "Gu, Dao 2023, arXiv 2312.00752 (Mamba)"},
    {weights, "gate", "complex",
     "Orvieto et al. 2023, arXiv 2303.06349 (LRU); Katsch 2023, arXiv 2311.01927 (GateLoop)"},
    {weights, "gate", "signed", "Grazzi, Siems, Franke, Zela, Hutter, Pontil 2024, arXiv 2411.12537"},
    {weights, "gate", "trapezoid", "Lahoti et al. 2026, arXiv 2603.15569 (Mamba-3)"},
    {weights, "", "beta", "textbook (weighted least squares, Aitken 1936)"},
    {weights, "", "exponential", mlstm},
    {weights, "power", "", "ttr; not from a paper"},
    {weights, "window", "",
     "textbook (sliding window; Haykin, Adaptive Filter Theory); in attention Beltagy, Peters, Cohan 2020, arXiv "
     "2004.05150"},
    {weights, "near", "", smoothing},
    {weights, "near", "exp", "Vaswani et al. 2017, arXiv 1706.03762"},
    {weights, "near", "gauss", "textbook (Gaussian kernel)"},
    {weights, "near", "laplace", "textbook (Laplace kernel)"},
    {weights, "near", "matern12", matern},
    {weights, "near", "matern32", matern},
    {weights, "near", "matern52", matern},
    {weights, "near", "epanechnikov", "textbook (Epanechnikov 1969)"},
    {weights, "near", "tricube", "textbook (Cleveland 1979)"},
    {weights, "near", "box", "textbook (uniform kernel)"},
    {weights, "near", "nearest", "textbook (Fix, Hodges 1951; Cover, Hart 1967)"},
    {weights, "near", "sink", "OpenAI 2025 (gpt-oss); before it as tokens Xiao et al. 2023, arXiv 2309.17453"},
    {weights, "near", "transport", "Yang et al. 2025, arXiv 2505.16381 (PaTH)"},
    {weights, "levels", "", "Guo et al. 2025, arXiv 2506.04761 (log-linear attention)"},
    {weights, "given", "", "textbook (weighted least squares, Aitken 1936)"},
    {weights, "mask", "", "Child, Gray, Radford, Sutskever 2019, arXiv 1904.10509 (sparse attention)"},
    {weights, "", "n", ""},
    {weights, "", "x", ""},
    {weights, "", "g", ""},
    {weights, "", "a", ""},
    {weights, "", "scale", ""},
    {weights, "", "bandwidth", ""},

    {memory, "linear", "", "textbook (Legendre 1805); as a memory Kohonen 1972"},
    {memory, "linear", "elu1", linear_attention},
    {memory, "linear", "relu", performer},
    {memory, "linear", "silu", "Yang, Wang, Zhang, Shen, Kim 2024, arXiv 2406.06484 (DeltaNet)"},
    {memory, "linear", "taylor2", "Arora et al. 2024, arXiv 2402.18668 (Based)"},
    {memory, "linear", "dpfp", "Schlag, Irie, Schmidhuber 2021, arXiv 2102.11174"},
    {memory, "linear", "polynomial", "textbook (polynomial regression); as a memory Poggio 1975"},
    {memory, "linear", "cosformer", "Qin et al. 2022, arXiv 2202.08791 (cosFormer)"},
    {memory, "linear", "t2r", "Kasai et al. 2021, arXiv 2103.13076 (T2R)"},
    {memory, "linear", "hedgehog", hedgehog},
    {memory, "linear", "hedgehog_exp", hedgehog},
    {memory, "linear", "hedgehog_softmax2", "flash-linear-attention's form of arXiv 2402.04347 (Hedgehog)"},
    {memory, "linear", "favor", performer},
    {memory, "linear", "favor_relu", performer},
    {memory, "linear", "rfa", "Rahimi, Recht 2007; in a layer Peng et al. 2021, arXiv 2103.02143 (RFA)"},
    {memory, "linear", "dijiang", "Chen et al. 2024, arXiv 2403.19928 (DiJiang)"},
    {memory, "linear", "rebased", "Aksenov et al. 2024, arXiv 2402.10644 (ReBased)"},
    {memory, "linear", "reverse", "Oja 1982; in a layer flash-linear-attention 2026 (gated Oja)"},
    {memory, "constant", "", smoothing},
    {memory, "constant", "channel", rwkv_4},
    {memory, "local", "",
     "textbook (Stone 1977; Cleveland 1979); in a layer Zuo et al. 2025, arXiv 2510.01450 (local linear attention)"},
    {memory, "kernel", "",
     "textbook (Aizerman, Braverman, Rozonoer 1964); in a layer Wang, Shi, Fox 2025, arXiv 2501.12352, Eq. 43"},
    {memory, "kernel", "exp", "textbook (exponential kernel)"},
    {memory, "kernel", "gauss", "textbook (Gaussian kernel)"},
    {memory, "kernel", "linear", "textbook (dual form; Saunders, Gammerman, Vovk 1998)"},
    {memory, "kernel", "polynomial", "textbook (polynomial kernel)"},
    {memory, "kernel", "laplace", "textbook (Laplace kernel)"},
    {memory, "kernel", "matern12", matern},
    {memory, "kernel", "matern32", matern},
    {memory, "kernel", "matern52", matern},
    {memory, "mlp", "",
     "textbook (Rumelhart, Hinton, Williams 1986); in a layer Sun et al. 2024, arXiv 2407.04620 (TTT)"},
    {memory, "mlp", "gelu", "Hendrycks, Gimpel 2016, arXiv 1606.08415"},
    {memory, "mlp", "gelu_tanh", "Hendrycks, Gimpel 2016, arXiv 1606.08415"},
    {memory, "mlp", "relu", "textbook (Nair, Hinton 2010)"},
    {memory, "mlp", "silu", "Elfwing, Uchibe, Doya 2017, arXiv 1702.03118"},
    {memory, "mlp", "tanh", "textbook"},
    {memory, "", "bias", "textbook"},
    {memory, "", "residual", ttt},
    {memory, "", "layernorm", ttt},
    {memory, "swiglu", "", "Shazeer 2020, arXiv 2002.05202; in a layer Zhang et al. 2025, arXiv 2505.23884 (LaCT)"},
    {memory, "layernorm", "", ttt},
    {memory, "layernorm", "linear", ""},
    {memory, "slots", "",
     "Peng et al. 2022, arXiv 2110.02488 (ABC); Zhang et al. 2024, arXiv 2409.07146 (gated slot attention)"},
    {memory, "vector", "",
     "Orvieto et al. 2023, arXiv 2303.06349 (LRU); Qin, Yang, Zhong 2023, arXiv 2311.04823 (HGRN)"},
    {memory, "", "features", ""},
    {memory, "", "length", ""},
    {memory, "", "degree", ""},
    {memory, "", "scale", ""},
    {memory, "", "bandwidth", ""},
    {memory, "", "n", ""},
    {memory, "", "p", ""},
    {memory, "", "m", ""},
    {memory, "", "4x", ""},
    {memory, "", "width", ""},

    {solver, "gd", "", "textbook (gradient descent, Cauchy 1847)"},
    {solver, "descend", "",
     "textbook (gradient descent, Cauchy 1847); in a layer Behrouz et al. 2025, arXiv 2505.23735 (Omega rule)"},
    {solver, "sgd", "", lms},
    {solver, "sgd", "beta", lms},
    {solver, "sgd", "nlms",
     "textbook (Nagumo, Noda 1967; Kaczmarz 1937); in a layer Wang, Shi, Fox 2025, arXiv 2501.12352, Eq. 33"},
    {solver, "sgd", "longhorn", "Liu, Wang, Wu, Feng, Stone, Liu 2024, arXiv 2407.14207 (Longhorn)"},
    {solver, "sgd", "flow", "Lei, Zhang, Poria 2025, arXiv 2512.12602 (EFLA)"},
    {solver, "sgd", "gain", "Huang et al. 2026, arXiv 2605.05838 (Momentum DeltaNet)"},
    {solver, "sgd", "pairs", "Siems, Carstensen, Zela, Hutter, Pontil, Grazzi 2025, arXiv 2502.10297 (DeltaProduct)"},
    {solver, "sgd", "feedback", "Hu et al. 2025, arXiv 2506.02475 (Comba)"},
    {solver, "sgd", "split", "Hatamizadeh, Choi, Kautz 2026, arXiv 2605.22791 (GDN-2)"},
    {solver, "sgd", "dplr", "Peng et al. 2025, arXiv 2503.14456 (RWKV-7)"},
    {solver, "sgd", "precondition", "Tumma, Loo, Rus 2026, arXiv 2604.21100 (Preconditioned DeltaNet)"},
    {solver, "minibatch", "", ttt},
    {solver, "", "step", "textbook (Cauchy 1847; a list of steps: Richardson 1910)"},
    {solver, "", "step=auto", "textbook (one over a bound of the curvature)"},
    {solver, "", "decay", "Yang, Kautz, Hatamizadeh 2024, arXiv 2412.06464 (Gated DeltaNet)"},
    {solver, "", "decay(key)", "Kimi Team 2025, arXiv 2510.26692 (KDA)"},
    {solver, "", "decay(value)", "flash-linear-attention 2026 (gated Oja)"},
    {solver, "", "leak", "textbook (leaky LMS, Widrow, Stearns 1985)"},
    {solver, "", "shrink", "Loshchilov, Hutter 2017, arXiv 1711.05101"},
    {solver, "", "momentum",
     "textbook (Polyak 1964); in a layer Behrouz, Zhong, Mirrokni 2024, arXiv 2501.00663 (Titans)"},
    {solver, "", "momentum=auto", "textbook (Nesterov 1983); (j-1)/(j+2): Su, Boyd, Candes 2015, arXiv 1503.01243"},
    {solver, "", "nesterov", "textbook (Nesterov 1983)"},
    {solver, "", "adagrad", "Duchi, Hazan, Singer 2011"},
    {solver, "", "rmsprop", "Tieleman, Hinton 2012"},
    {solver, "", "adam", "Kingma, Ba 2014, arXiv 1412.6980"},
    {solver, "", "shampoo", "Gupta, Koren, Singer 2018, arXiv 1802.09568"},
    {solver, "", "lbfgs", "textbook (Nocedal 1980; Liu, Nocedal 1989)"},
    {solver, "", "newton", "textbook (Levenberg 1944; Marquardt 1963)"},
    {solver, "", "muon", "Jordan et al. 2024 (Muon); in a layer Behrouz et al. 2025, arXiv 2505.23735 (ATLAS)"},
    {solver, "", "rownorm", "Zhang et al. 2025, arXiv 2505.23884 (LaCT)"},
    {solver, "", "qnorm", miras},
    {solver, "", "mirror", "textbook (mirror descent, Nemirovski, Yudin 1983)"},
    {solver, "", "mirror=softmax", "Behrouz, Razaviyayn, Zhong, Mirrokni 2025, arXiv 2504.13173 (Memora)"},
    {solver, "", "mirror=exp", "textbook (exponentiated gradient, Kivinen, Warmuth 1997)"},
    {solver, "", "mirror=sinh", "Ghai, Hazan, Singer 2019, arXiv 1902.01903"},
    {solver, "exact", "", "textbook (least squares, Legendre 1805; recursive, Plackett 1950)"},
    {solver, "cg", "",
     "textbook (Hestenes, Stiefel 1952); in a layer von Oswald et al. 2025, arXiv 2506.05233 (MesaNet)"},
    {solver, "chebyshev", "",
     "textbook (Golub, Varga 1961); in a layer Peng, Chattopadhyay et al. 2025, arXiv 2511.21016 (Gated KalmaNet)"},
    {solver, "irls", "", "textbook (Beaton, Tukey 1974; Holland, Welsch 1977)"},
    {solver, "", "ridge", "textbook (Tikhonov 1963; Hoerl, Kennard 1970)"},
    {solver, "", "ridge(key)", "von Oswald et al. 2025, arXiv 2506.05233 (MesaNet)"},
    {solver, "", "relative", "textbook (the ridge beside a mean of losses)"},
    {solver, "", "frobenius", gated_kalmanet},
    {solver, "", "fading", "textbook (the start of RLS; Haykin, Adaptive Filter Theory)"},
    {solver, "apa", "", "textbook (Ozeki, Umeda 1984)"},
    {solver, "kalman", "", "textbook (Kalman 1960)"},
    {solver, "given", "", "Zuo et al. 2026, arXiv 2605.29157 (Parallax)"},
    {solver, "", "n", ""},
    {solver, "", "b", ""},
    {solver, "", "p", ""},
    {solver, "", "mu", ""},
    {solver, "", "eps", ""},
    {solver, "", "rate", ""},
    {solver, "", "radius", ""},
    {solver, "", "process", ""},
    {solver, "", "noise", ""},

    {extra, "squared", "", "textbook (Legendre 1805)"},
    {extra, "dot", "",
     "textbook (its step is Hebb's rule, 1949); in a layer Zhang et al. 2025, arXiv 2505.23884 (LaCT)"},
    {extra, "huber", "", "textbook (Huber 1964)"},
    {extra, "huber", "coordinate", ""},
    {extra, "lp", "", "textbook; in a layer Behrouz, Razaviyayn, Zhong, Mirrokni 2025, arXiv 2504.13173 (Moneta)"},
    {extra, "insensitive", "", "textbook (Vapnik 1995)"},
    {extra, "quantile", "", "textbook (Koenker, Bassett 1978)"},
    {extra, "logistic", "", "textbook (logistic regression, Cox 1958)"},
    {extra, "cross_entropy", "", "textbook (multinomial logistic regression)"},
    {extra, "l1", "", "textbook (Tibshirani 1996; the step: Daubechies, Defrise, De Mol 2004)"},
    {extra, "l2", "", "textbook (Hoerl, Kennard 1970; with l1: Zou, Hastie 2005)"},
    {extra, "normalise", "", "textbook"},
    {extra, "normalise", "keysum", linear_attention},
    {extra, "normalise", "rms", "Zhang, Sennrich 2019, arXiv 1910.07467"},
    {extra, "normalise", "unit", ""},
    {extra, "normalise", "max", mlstm},
    {extra, "read", "", rwkv_4},
    {extra, "read", "before", ""},
    {extra, "read", "bonus", rwkv_4},
    {extra, "blend", "", gated_kalmanet},
    {extra, "keys", "", "textbook"},
    {extra, "keys", "unit", "Henry, Dachapally, Pawar, Chen 2020, arXiv 2010.04245 (QKNorm)"},
    {extra, "keys", "rms", "Zhang, Sennrich 2019, arXiv 1910.07467"},
    {extra, "", "c", ""},
    {extra, "", "p", ""},
    {extra, "", "x", ""},
    {extra, "", "eps", ""},
    {extra, "", "mean", ""},
};

/// The row of an option of a word, else that of all words of the axis.
const SourceRow* find_row(Axis axis, std::string_view word, std::string_view option) {
  const SourceRow* of_all = nullptr;
  for (const SourceRow& row : table) {
    if (row.axis != axis || row.option != option) continue;
    if (row.word == word) return &row;
    if (row.word.empty()) of_all = &row;
  }
  return of_all;
}

/// "decay(key)", "mirror=softmax"; the name alone where the argument has no word of its own.
std::string written(const Argument& argument) {
  const Term* inner = std::get_if<Term>(&argument.value);
  if (!inner) return argument.key;
  if (inner->word != argument.key) return argument.key + "=" + inner->word;
  return inner->arguments.empty() ? argument.key : argument.key + "(" + inner->arguments.front().key + ")";
}

void add_sources(Axis axis, const Term& term, Notation notation, std::vector<std::string>& out) {
  const auto add = [&](const std::string& what, std::string_view source) {
    out.push_back(prose(what + ": " + std::string(source), notation));
  };
  const std::string_view of_word = source_of(axis, term.word).value_or("");
  add(term.word, of_word);
  for (const Argument& argument : term.arguments) {
    if (argument.key.empty()) continue;
    std::string option = written(argument);
    if (!source_of(axis, term.word, option)) option = argument.key;
    const std::string_view source = source_of(axis, term.word, option).value_or("");
    if (!source.empty() && source != of_word) add(term.word + "(" + option + ")", source);
  }
}

}  // namespace

std::span<const SourceRow> source_rows() { return table; }

std::optional<std::string_view> source_of(Axis axis, std::string_view word, std::string_view option) {
  const SourceRow* const row = find_row(axis, word, option);
  return row ? std::optional(row->source) : std::nullopt;
}

std::string source_cell(const WordInfo& info, const OptionInfo& option) {
  std::string text(source_of(info.axis, info.word, option.name).value_or(""));
  const std::string name(option.name);
  for (const std::string& word : split_words(option.words))
    for (const std::string& way : {name + "(" + word + ")", name + "=" + word})
      if (const auto source = source_of(info.axis, info.word, way))
        text += (text.empty() ? "`" : "; `") + way + "`: " + std::string(*source);
  return text;
}

std::vector<std::string> sources(const Recipe& recipe, Notation notation) {
  std::vector<std::string> out;
  for (const Term& term : recipe.weights) add_sources(Axis::weights, term, notation, out);
  add_sources(Axis::memory, recipe.memory, notation, out);
  add_sources(Axis::solver, recipe.solver, notation, out);
  for (const Term& term : recipe.extras) add_sources(Axis::extra, term, notation, out);
  return out;
}

}  // namespace ttr
