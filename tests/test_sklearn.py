"""The estimators as scikit-learn knows them: its own checks, then its tools around them."""

from __future__ import annotations

import copy
import inspect
import pickle
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
import sklearn
from numpy.typing import NDArray
from scipy.sparse import csr_matrix, issparse
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.utils import estimator_checks
from sklearn.utils.estimator_checks import estimator_checks_generator, parametrize_with_checks

from autocross import AutoCross, AutoCrossClassifier, load
from autocross.errors import LabelError, OptionError, TableError
from autocross.options import all_options
from autocross.producer.features import Features

CLASSES = (AutoCross, AutoCrossClassifier)

make_cross = partial(AutoCross, quiet=True, engine="serial")
make_classifier = partial(AutoCrossClassifier, quiet=True, engine="serial")


# scikit-learn's checks. Those that cannot hold are listed with the reason, and fail for as long as they are listed.

FOLDS_COUNT_ROWS = (
    "penalties are judged on rows left out, bins and rare values count rows: a row given twice is not one row of weight 2 "
    "there. For the weights alone, which refit learns, it is."
)
BY_NAME = "columns are found by name: their order does not matter, others are not looked at, and absent ones have our message"
READABLE = (
    "a frame holds readable columns, one a field, and not the numbers of the one-hot matrix, which is the default; "
    "and after a fit on an array, the columns of a frame are not taken by position"
)

CANNOT_HOLD = {
    AutoCross: {"check_sample_weight_equivalence_on_dense_data": FOLDS_COUNT_ROWS},
    AutoCrossClassifier: {"check_sample_weight_equivalence_on_dense_data": FOLDS_COUNT_ROWS},
}

# Checks that scikit-learn keeps for its own estimators: None where they hold here too.
FOR_ITS_OWN = [
    (AutoCross, "check_get_feature_names_out_error", None),
    (AutoCross, "check_transformer_get_feature_names_out", None),
    (AutoCross, "check_transformer_get_feature_names_out_pandas", None),
    (AutoCross, "check_set_output_transform", None),
    (AutoCross, "check_set_output_transform_pandas", READABLE),
    (AutoCross, "check_set_output_transform_polars", READABLE),
    (AutoCross, "check_global_output_transform_pandas", READABLE),
    (AutoCross, "check_global_set_output_transform_polars", READABLE),
    (AutoCross, "check_dataframe_column_names_consistency", BY_NAME),
    (AutoCrossClassifier, "check_dataframe_column_names_consistency", BY_NAME),
]


def cannot_hold(estimator: Any) -> dict[str, str]:
    return CANNOT_HOLD[type(estimator)]


@pytest.mark.slow
@parametrize_with_checks([make_cross(), make_classifier()], expected_failed_checks=cannot_hold)
@pytest.mark.filterwarnings("ignore::autocross.errors.TableWarning")
def test_scikit_learns_check(estimator: Any, check: Callable[[Any], None]) -> None:
    check(estimator)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind in CLASSES for name in CANNOT_HOLD[kind]])
@pytest.mark.filterwarnings("ignore::autocross.errors.TableWarning")
def test_a_check_listed_as_impossible_fails(kind: type, name: str) -> None:
    checks = {check.func.__name__: check for _, check in estimator_checks_generator(kind(quiet=True, engine="serial"))}
    with pytest.raises(AssertionError):
        checks[name](kind(quiet=True, engine="serial"))


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "name", "reason"), FOR_ITS_OWN, ids=[f"{kind.__name__}-{name}" for kind, name, _ in FOR_ITS_OWN])
@pytest.mark.filterwarnings("ignore::autocross.errors.TableWarning")
def test_a_check_for_scikit_learns_own(kind: type, name: str, reason: str | None) -> None:
    check = partial(getattr(estimator_checks, name), kind.__name__, kind(quiet=True, engine="serial"))
    if reason is None:
        check()
    else:
        with pytest.raises((AssertionError, TableError)):
            check()


# The constructor.


@pytest.mark.parametrize("kind", CLASSES)
def test_the_constructor_has_all_options(kind: type) -> None:
    parameters = inspect.signature(kind).parameters
    assert {name: one.default for name, one in parameters.items()} == {one.name: one.default for one in all_options()}
    assert list(parameters) == [one.name for one in all_options()]
    assert {one.kind for one in parameters.values()} == {inspect.Parameter.KEYWORD_ONLY}


@pytest.mark.parametrize("kind", CLASSES)
def test_arguments_are_stored_untouched_and_checked_in_fit(kind: type) -> None:
    types = {"a": "categorical"}
    estimator = kind(types=types, bins="wrong")
    assert estimator.types is types
    with pytest.raises(OptionError, match="bins='wrong' is unknown"):
        estimator.fit(pl.DataFrame({"a": [1, 2]}), [0, 1])


@pytest.mark.parametrize("kind", CLASSES)
def test_clone_keeps_the_options_and_forgets_the_fit(kind: type, people: pl.DataFrame) -> None:
    options = {"types": {"rooms": "numerical"}, "granularities": [5, 10], "min_count": 3, "quiet": True, "engine": "serial"}
    estimator = kind(**options).fit(people, "bought")
    copied = clone(estimator)
    assert copied.get_params() == estimator.get_params()
    assert {name: copied.get_params()[name] for name in options} == options
    with pytest.raises(NotFittedError):
        copied._rows(people)


# The tools around an estimator.


@pytest.fixture(scope="module")
def X(people: pl.DataFrame) -> pl.DataFrame:  # noqa: N802  scikit-learn's word for the table
    """One value a cell."""
    return people.drop("bought", "tags")


@pytest.fixture(scope="module")
def y(people: pl.DataFrame) -> NDArray[Any]:
    return people["bought"].to_numpy()


@pytest.fixture(scope="module")
def cross(X: pl.DataFrame, y: NDArray[Any]) -> AutoCross:
    """A fitted transformer; tests that would change it take a copy."""
    return make_cross().fit(X, y)


@pytest.fixture(scope="module")
def classifier(X: pl.DataFrame, y: NDArray[Any]) -> AutoCrossClassifier:
    """A fitted classifier; tests that would change it take a copy."""
    return make_classifier().fit(X, y)


FRAMES: dict[str, Callable[[pl.DataFrame], Any]] = {
    "polars": lambda frame: frame,
    "pandas": lambda frame: frame.to_pandas(),
    "shuffled index": lambda frame: frame.to_pandas().set_index(np.random.default_rng(1).permutation(frame.height) + 1000),
}


@pytest.fixture(params=list(FRAMES))
def as_frame(request: pytest.FixtureRequest) -> Callable[[pl.DataFrame], Any]:
    """Every frame library that scikit-learn can take rows from."""
    return FRAMES[request.param]


def test_a_pipeline_learns_from_the_features(as_frame: Any, X: pl.DataFrame, y: NDArray[Any]) -> None:
    pipeline = make_pipeline(make_cross(), LogisticRegression(C=0.1)).fit(as_frame(X), y)
    assert pipeline.score(as_frame(X), y) > 0.65
    assert pipeline[:-1].get_feature_names_out().tolist() == pipeline[0].get_feature_names_out().tolist()


def test_a_pipeline_passes_weights_on(X: pl.DataFrame, y: NDArray[Any]) -> None:
    pipeline = Pipeline([("cross", make_cross()), ("model", make_classifier())])
    pipeline.set_output(transform="polars").fit(X, y, model__sample_weight=np.where(y == 1, 5.0, 1.0))
    plain = clone(pipeline).fit(X, y)
    assert pipeline.predict_proba(X)[:, 1].mean() > plain.predict_proba(X)[:, 1].mean() + 0.1


@pytest.mark.slow
def test_cross_val_score(as_frame: Any, people: pl.DataFrame, y: NDArray[Any]) -> None:
    scores = cross_val_score(make_classifier(), as_frame(people.drop("bought")), y, scoring="roc_auc", cv=3)
    assert scores.shape == (3,)
    assert scores.mean() > 0.55


def test_cross_val_score_of_words(X: pl.DataFrame, y: NDArray[Any]) -> None:
    words = np.where(y == 1, "yes", "no")
    as_words = cross_val_score(make_classifier(), X, words, scoring="roc_auc", cv=2)
    assert as_words.tolist() == cross_val_score(make_classifier(), X, y, scoring="roc_auc", cv=2).tolist()


def test_grid_search_over_options(X: pl.DataFrame, y: NDArray[Any]) -> None:
    search = GridSearchCV(make_classifier(), {"min_count": [1, 10_000]}, scoring="roc_auc", cv=2).fit(X, y)
    assert search.best_params_ == {"min_count": 1}  # with the other, every value is rare
    assert search.best_estimator_.min_count == 1
    assert search.predict(X).shape == y.shape


@pytest.mark.parametrize("again", [lambda one: pickle.loads(pickle.dumps(one)), copy.deepcopy], ids=["pickle", "deepcopy"])
def test_a_copy_predicts_the_same(again: Any, classifier: AutoCrossClassifier, cross: AutoCross, X: pl.DataFrame) -> None:
    copied = again(classifier)
    assert copied.get_params() == classifier.get_params()
    np.testing.assert_array_equal(copied.predict_proba(X), classifier.predict_proba(X))
    assert copied.explain(X.row(0, named=True)) == classifier.explain(X.row(0, named=True))
    assert (again(cross).transform(X) != cross.transform(X)).nnz == 0


def test_an_unfitted_estimator_survives_pickle() -> None:
    copied = pickle.loads(pickle.dumps(make_classifier(min_count=3)))
    assert copied.min_count == 3
    with pytest.raises(NotFittedError):
        copied.explain({})


# The transformer's outputs.


def sizes(cross: AutoCross) -> list[int]:
    return [field.n_codes for field in Features(cross.model_).fields]


def test_csr_has_one_1_for_each_field(cross: AutoCross, X: pl.DataFrame) -> None:
    features = cross.transform(X)
    assert issparse(features) and isinstance(features, csr_matrix)
    assert features.shape == (X.height, sum(sizes(cross)))
    assert set(features.data) == {1.0}
    assert np.asarray(features.sum(axis=1)).ravel().tolist() == [len(sizes(cross))] * X.height
    assert (features != cross.transform(X, output="csr")).nnz == 0


def test_codes_are_the_places_of_the_ones(cross: AutoCross, X: pl.DataFrame) -> None:
    codes = cross.transform(X, output="codes")
    assert codes.dtype.kind == "u"
    assert codes.shape == (X.height, len(sizes(cross)))
    first = np.cumsum([0, *sizes(cross)[:-1]])
    np.testing.assert_array_equal(cross.transform(X).indices.reshape(codes.shape), codes + first)


def test_a_frame_names_the_values_of_the_ones(cross: AutoCross, X: pl.DataFrame) -> None:
    frame = cross.transform(X, output="frame")
    names = cross.get_feature_names_out()
    assert len(set(names)) == len(names) == sum(sizes(cross))
    for row, ones in zip(frame.head(20).iter_rows(named=True), cross.transform(X.head(20)), strict=True):
        assert [f"{field}={value}" for field, value in row.items()] == names[ones.indices].tolist()


def test_several_values_a_cell(people: pl.DataFrame) -> None:
    X = people.select("job", "tags")
    cross = make_cross(min_count=1).fit(X, people["bought"])
    n_tags = X["tags"].list.len().fill_null(1).to_numpy()  # missing is a code of its own
    assert np.asarray(cross.transform(X).sum(axis=1)).ravel().tolist() == (1 + n_tags).tolist()
    assert cross.transform(X, output="frame").columns == ["job", "tags"]
    with pytest.raises(OptionError, match="Field 'tags' has several codes a row"):
        cross.transform(X, output="codes")


def test_an_unknown_output(cross: AutoCross, X: pl.DataFrame) -> None:
    with pytest.raises(OptionError, match="output='dense' is unknown"):
        cross.transform(X, output="dense")  # type: ignore[arg-type]


def test_a_frame_comes_in_the_library_of_the_input(cross: AutoCross, X: pl.DataFrame) -> None:
    ours = cross.transform(X, output="frame")
    theirs = cross.transform(FRAMES["shuffled index"](X), output="frame")
    assert isinstance(ours, pl.DataFrame)
    assert isinstance(theirs, pd.DataFrame)
    assert theirs.index.tolist() == FRAMES["shuffled index"](X).index.tolist()
    assert theirs.to_dict("list") == ours.to_dict(as_series=False)


@pytest.mark.parametrize(("library", "kind"), [("pandas", pd.DataFrame), ("polars", pl.DataFrame)])
def test_set_output(library: str, kind: type, as_frame: Any, X: pl.DataFrame, y: NDArray[Any]) -> None:
    rows = as_frame(X)
    cross = make_cross().set_output(transform=library)
    frame = cross.fit_transform(rows, y)
    assert isinstance(frame, kind)
    assert list(frame.columns) == cross.get_feature_names_out().tolist() == Features(cross.model_).names
    assert set(frame["job"]) == {"cook", "nurse", "clerk", "pilot", "(missing)"}
    codes = cross.transform(rows, output="codes")
    assert isinstance(codes, kind)
    assert list(codes.columns) == list(frame.columns)
    if library == "pandas" and isinstance(rows, pd.DataFrame):
        assert frame.index.equals(rows.index) and codes.index.equals(rows.index)


def test_set_output_for_all_of_scikit_learn(cross: AutoCross, X: pl.DataFrame) -> None:
    with sklearn.config_context(transform_output="polars"):
        frame = cross.transform(X)
        assert frame.columns == cross.get_feature_names_out().tolist()
        assert issparse(copy.deepcopy(cross).set_output(transform="default").transform(X))
    assert issparse(cross.transform(X))


# The target ends at fit.


@pytest.mark.slow
def test_fit_transform_is_fit_then_transform(as_frame: Any, people: pl.DataFrame, y: NDArray[Any]) -> None:
    rows = as_frame(people.drop("bought"))
    at_once, fitted = make_cross().fit_transform(rows, y), make_cross().fit(rows, y)
    assert (at_once != fitted.transform(rows)).nnz == 0


def test_transform_does_not_look_at_the_target(people: pl.DataFrame) -> None:
    cross = make_cross().fit(people, "bought")
    with_target, without = cross.transform(people), cross.transform(people.drop("bought"))
    other_target = cross.transform(people.with_columns(bought=1 - pl.col("bought")))
    assert (with_target != without).nnz == 0
    assert (with_target != other_target).nnz == 0
    assert not [name for name in cross.get_feature_names_out() if name.startswith("bought")]


def test_labels_do_not_change_how_values_are_coded(X: pl.DataFrame, y: NDArray[Any]) -> None:
    words = X.select("job", "member", pl.col("rooms").clip(1, 2))  # of a numerical column, labels choose the granularities
    labels = [y, 1 - y, np.random.default_rng(3).permutation(y)]
    first, *others = [make_cross().fit_transform(words, one) for one in labels]
    assert all((first != other).nnz == 0 for other in others)


# The classifier.


def test_probabilities_and_decisions_agree(classifier: AutoCrossClassifier, X: pl.DataFrame) -> None:
    chance, log_odds, label = classifier.predict_proba(X), classifier.decision_function(X), classifier.predict(X)
    assert chance.shape == (X.height, 2)
    np.testing.assert_allclose(chance.sum(axis=1), 1.0, rtol=1e-15)
    np.testing.assert_allclose(chance[:, 1], 1 / (1 + np.exp(-log_odds)), rtol=1e-12)
    np.testing.assert_array_equal(label, classifier.classes_[(log_odds > 0).astype(int)])
    np.testing.assert_array_equal(label, classifier.classes_[chance.argmax(axis=1)])


@pytest.mark.slow
@pytest.mark.parametrize("pair", [("no", "yes"), (False, True), (0, 1), (-1, 1), (7, 3), (0.0, 1.0)], ids=str)
@pytest.mark.parametrize("given", [list, np.array, pl.Series, pd.Series])
def test_labels_of_any_type(pair: tuple[Any, Any], given: Any, classifier: Any, X: pl.DataFrame, y: NDArray[Any]) -> None:
    low, high = sorted(pair)
    other = make_classifier().fit(X, given([high if one else low for one in y]))
    assert other.classes_.tolist() == [low, high]
    assert {type(one) for one in other.classes_.tolist()} == {type(low)}
    np.testing.assert_array_equal(other.predict_proba(X), classifier.predict_proba(X))
    np.testing.assert_array_equal(other.predict(X), np.where(classifier.predict(X) == 1, high, low))


@pytest.mark.parametrize("dtype", ["category", "string", "object"])
def test_labels_of_pandas_text_types(dtype: str, classifier: Any, X: pl.DataFrame, y: NDArray[Any]) -> None:
    words = pd.Series(np.where(y == 1, "yes", "no"), name="bought").astype(dtype)
    other = make_classifier().fit(X, words)
    assert other.classes_.tolist() == ["no", "yes"]
    assert other.model_.about.target == "bought"
    np.testing.assert_array_equal(other.predict_proba(X), classifier.predict_proba(X))


def test_accuracy_is_the_score(classifier: AutoCrossClassifier, X: pl.DataFrame, y: NDArray[Any]) -> None:
    assert classifier.score(X, pl.Series(y)) == np.mean(classifier.predict(X) == y)


def test_positive_turns_the_question_around(X: pl.DataFrame, y: NDArray[Any], tmp_path: Path) -> None:
    words = np.where(y == 1, "yes", "no")
    usual, turned = make_classifier().fit(X, words), make_classifier(positive="no").fit(X, words)
    assert usual.classes_.tolist() == turned.classes_.tolist() == ["no", "yes"]
    assert turned.model_.about.classes == ("yes", "no")
    np.testing.assert_allclose(turned.predict_proba(X), usual.predict_proba(X), atol=1e-6)
    np.testing.assert_array_equal(turned.decision_function(X) > 0, turned.predict(X) == "yes")
    turned.save(tmp_path / "turned.acx")
    np.testing.assert_allclose(load(tmp_path / "turned.acx").score(X), turned.predict_proba(X)[:, 0], rtol=1e-12)


def test_the_target_and_the_weight_may_be_columns(X: pl.DataFrame, y: NDArray[Any]) -> None:
    weight = np.random.default_rng(5).integers(1, 4, len(y)).astype(float)
    table = X.with_columns(label=y, weight=weight)
    apart = make_classifier().fit(X, y, sample_weight=weight)
    ways = [
        make_classifier().fit(table, "label", sample_weight="weight"),
        make_classifier().fit(table.drop("label"), y, sample_weight="weight"),
        make_classifier().fit(table.drop("weight"), "label", sample_weight=weight),
    ]
    for way in ways:
        assert way.feature_names_in_.tolist() == X.columns
        np.testing.assert_array_equal(way.predict_proba(X), apart.predict_proba(X))
        np.testing.assert_array_equal(way.predict_proba(table), apart.predict_proba(X))


@pytest.mark.parametrize(
    ("words", "message"), [({"y": "lable"}, "target column 'lable'"), ({"sample_weight": "w"}, "weight column 'w'")]
)
def test_a_column_that_is_not_there(words: dict[str, str], message: str, people: pl.DataFrame) -> None:
    with pytest.raises(LabelError, match=f"The {message} is not in the table. Its columns are 'job', "):
        make_classifier().fit(people, **{"y": "bought", **words})


def test_every_frame_gives_the_same(as_frame: Any, people: pl.DataFrame) -> None:
    other = make_classifier().fit(as_frame(people.drop("bought")), as_frame(people)["bought"])
    expected = make_classifier().fit(people, "bought").predict_proba(people)
    np.testing.assert_array_equal(other.predict_proba(as_frame(people)), expected)
    np.testing.assert_array_equal(other.predict_proba(people.lazy()), expected)


def test_a_path_is_a_table(people: pl.DataFrame, tmp_path: Path) -> None:
    people.write_parquet(tmp_path / "people.parquet")
    from_file = make_classifier().fit(tmp_path / "people.parquet", "bought")
    assert from_file.feature_names_in_.tolist() == people.drop("bought").columns
    expected = make_classifier().fit(people, "bought").predict_proba(people)
    np.testing.assert_array_equal(from_file.predict_proba(str(tmp_path / "people.parquet")), expected)


def test_columns_are_found_by_name(classifier: AutoCrossClassifier, X: pl.DataFrame) -> None:
    mixed = X.with_columns(extra=pl.lit(1)).select(reversed([*X.columns, "extra"]))
    np.testing.assert_array_equal(classifier.predict_proba(mixed), classifier.predict_proba(X))
    with pytest.raises(TableError, match="Column 'age' is missing from the table"):
        classifier.predict_proba(X.drop("age"))


def test_no_rows(classifier: AutoCrossClassifier, cross: AutoCross, X: pl.DataFrame) -> None:
    assert classifier.predict_proba(X.head(0)).shape == (0, 2)
    assert classifier.predict(X.head(0)).shape == (0,)
    assert cross.transform(X.head(0)).shape == (0, sum(sizes(cross)))


# What fit notes about its table.


def test_names_and_number_of_columns(classifier: AutoCrossClassifier, X: pl.DataFrame) -> None:
    assert classifier.n_features_in_ == X.width
    assert classifier.feature_names_in_.tolist() == X.columns
    assert classifier.feature_names_in_.dtype == object


def test_rows_without_names_have_the_columns_of_fit(classifier: AutoCrossClassifier, X: pl.DataFrame) -> None:
    rows = np.array(X.rows(), dtype=object)
    np.testing.assert_array_equal(classifier.predict_proba(rows), classifier.predict_proba(X))
    np.testing.assert_array_equal(classifier.predict_proba(rows.tolist()), classifier.predict_proba(X))
    with pytest.raises(TableError, match="X has 4 features, but AutoCrossClassifier is expecting 5 features as input"):
        classifier.predict_proba(rows[:, 1:])


def test_a_second_fit_forgets_the_first(X: pl.DataFrame, y: NDArray[Any]) -> None:
    numbers = np.random.default_rng(2).normal(size=(len(y), 3))
    again = make_classifier().fit(X, y).fit(numbers, y)
    assert again.n_features_in_ == 3
    assert not hasattr(again, "feature_names_in_")
    fresh = make_classifier().fit(numbers, y)
    np.testing.assert_array_equal(again.predict_proba(numbers), fresh.predict_proba(numbers))


# Weights of rows.


def test_a_row_of_weight_0_leaves_no_trace(X: pl.DataFrame, y: NDArray[Any]) -> None:
    counts = X["job"].fill_null("").to_numpy() != "pilot"
    weighted = make_classifier().fit(X, y, sample_weight=counts.astype(float))
    apart = make_classifier().fit(X.filter(counts), y[counts])
    np.testing.assert_array_equal(weighted.predict_proba(X), apart.predict_proba(X))


def test_weights_change_the_answer(classifier: AutoCrossClassifier, X: pl.DataFrame, y: NDArray[Any]) -> None:
    heavier = make_classifier().fit(X, y, sample_weight=np.where(y == 1, 3.0, 1.0))
    assert heavier.predict_proba(X)[:, 1].mean() > classifier.predict_proba(X)[:, 1].mean() + 0.1


@pytest.mark.parametrize(
    ("weight", "message"),
    [
        (lambda n: np.zeros(n), "All sample weights are zero"),
        (lambda n: np.ones(n + 1), "Sample weights have shape"),
        (lambda n: np.where(np.arange(n) == 3, -1.0, 1.0), "Sample weight -1.0 in row 3 is no weight"),
        (lambda n: np.where(np.arange(n) == 2, np.nan, 1.0), "Sample weight nan in row 2 is no weight"),
        (lambda n: np.where(np.arange(n) == 1, 1e39, 1.0), "Sample weight 1e\\+39 in row 1 is no weight"),
    ],
)
def test_weights_that_are_none(weight: Any, message: str, X: pl.DataFrame, y: NDArray[Any]) -> None:
    with pytest.raises(TableError, match=message):
        make_classifier().fit(X, y, sample_weight=weight(len(y)))


def test_weight_on_one_class_only(X: pl.DataFrame, y: NDArray[Any]) -> None:
    with pytest.raises(LabelError, match="holds the one class 1"):
        make_classifier().fit(X, y, sample_weight=y)


# New weights for the same fields.


def test_refit_learns_new_weights_for_the_same_fields(classifier: AutoCrossClassifier, X: pl.DataFrame, y: NDArray[Any]) -> None:
    other = copy.deepcopy(classifier)
    assert other.refit(X, 1 - y) is other
    assert other.model_.producer.names == classifier.model_.producer.names
    assert Features(other.model_).value_names() == Features(classifier.model_).value_names()
    assert other.model_.penalties == classifier.model_.penalties
    np.testing.assert_allclose(other.predict_proba(X)[:, 0], classifier.predict_proba(X)[:, 1], atol=1e-2)
    row = X.row(0, named=True)
    assert other.explain(row).log_odds == pytest.approx(other.decision_function(X)[0])


def test_refit_on_the_same_rows_changes_little(classifier: AutoCrossClassifier, X: pl.DataFrame, y: NDArray[Any]) -> None:
    again = copy.deepcopy(classifier).refit(X, y)
    np.testing.assert_allclose(again.predict_proba(X), classifier.predict_proba(X), atol=1e-3)


def test_few_rows_learn_a_straight_line_and_a_saved_model_is_refitted_to_it(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=300)
    rows = pl.DataFrame({"x": x, "y": rng.random(300) < 1 / (1 + np.exp(-2 * x))})
    fitted = AutoCrossClassifier(quiet=True, max_crosses=0).fit(rows, "y")
    assert all(penalty.slope > 0 for penalty in fitted.model_.penalties)
    far = pl.DataFrame({"x": np.linspace(-1.5, 1.5, 31)})
    steepness = np.polyfit(far["x"], fitted.decision_function(far), 1)[0]
    assert 1.4 < steepness < 2.6
    fitted.save(tmp_path / "model.acx")
    again = copy.deepcopy(fitted)
    again._keep(load(tmp_path / "model.acx").model)  # a file has no places of bins; refit finds them
    again.refit(rows, "y")
    np.testing.assert_allclose(again.decision_function(far), fitted.decision_function(far), atol=1e-3)


def test_a_weight_of_2_is_the_row_twice_but_for_the_penalties(
    classifier: AutoCrossClassifier, X: pl.DataFrame, y: NDArray[Any]
) -> None:
    """Weights count in relation to each other, so that penalties weigh against a row of mean weight."""
    times = np.random.default_rng(4).integers(0, 4, len(y))
    rows = np.repeat(np.arange(len(y)), times)
    weighted = copy.deepcopy(classifier).refit(X, y, sample_weight=times)
    scaled = copy.deepcopy(classifier).refit(X, y, sample_weight=3.0 * times)
    np.testing.assert_allclose(weighted.predict_proba(X), scaled.predict_proba(X), atol=1e-6)
    held = copy.deepcopy(classifier)
    mean_weight = times[times > 0].mean()
    held._keep(replace(held.model_, penalties=tuple(penalty.times(mean_weight) for penalty in held.model_.penalties)))
    repeated = held.refit(X[rows], y[rows])
    np.testing.assert_allclose(weighted.predict_proba(X), repeated.predict_proba(X), atol=1e-6)
    assert np.abs(weighted.predict_proba(X) - classifier.predict_proba(X)).max() > 0.01


def test_refit_takes_what_fit_takes(X: pl.DataFrame, y: NDArray[Any]) -> None:
    words = np.where(y == 1, "yes", "no")
    fitted = make_classifier().fit(X, words)
    ways = [(X, words), (X.to_pandas(), pd.Series(words)), (X.with_columns(label=words), "label"), (X.rows(), words.tolist())]
    first, *others = [copy.deepcopy(fitted).refit(*way).predict_proba(X) for way in ways]
    for other in others:
        np.testing.assert_array_equal(other, first)


def test_refit_refuses(classifier: AutoCrossClassifier, X: pl.DataFrame, y: NDArray[Any]) -> None:
    with pytest.raises(LabelError, match="holds 2 in row 0; the model knows 0 and 1"):
        copy.deepcopy(classifier).refit(X, np.full(len(y), 2))
    with pytest.raises(LabelError, match="holds one class only"):
        copy.deepcopy(classifier).refit(X, np.ones(len(y)))
    with pytest.raises(TableError, match="The table has 400 rows, but there are 399 labels"):
        copy.deepcopy(classifier).refit(X, y[1:])
    with pytest.raises(NotFittedError):
        make_classifier().refit(X, y)
