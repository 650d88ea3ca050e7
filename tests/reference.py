"""The slow, obvious version of each kernel: what the fast ones must equal."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass
class CodedRows:
    """Rows of one field. ``starts`` delimits each row's codes, also where every row has just one."""

    codes: np.ndarray[Any, Any]
    starts: np.ndarray[Any, Any]
    n_codes: int
    label: np.ndarray[Any, Any]
    weight: np.ndarray[Any, Any]
    fold: np.ndarray[Any, Any]
    offset: np.ndarray[Any, Any]
    forward: bool = False

    @property
    def single(self) -> bool:
        return bool((np.diff(self.starts) == 1).all())

    def of_row(self, row: int) -> list[int]:
        return self.codes[self.starts[row] : self.starts[row + 1]].tolist()

    def learns(self, k: int, row: int) -> bool:
        """Whether a model learns from a row."""
        fold = int(self.fold[row])
        return fold == 255 or (fold < k if self.forward else fold != k)

    @property
    def learners(self) -> np.ndarray[Any, Any]:
        """The same as the kernels have it."""
        later = [6 + fold if fold != 255 else 255 for fold in self.fold.tolist()]
        return np.array(later, np.uint8) if self.forward else self.fold


def loss(z: float, y: int) -> float:
    return math.log(1 + math.exp(-z)) if y == 1 else math.log(1 + math.exp(z))


def gather(rows: CodedRows) -> np.ndarray[Any, Any]:
    sums = np.zeros((rows.n_codes, rows.offset.shape[1], 2))
    for row in range(len(rows.label)):
        for k in range(rows.offset.shape[1]):
            if rows.learns(k, row):
                p = 1 / (1 + math.exp(-rows.offset[row, k]))
                for code in rows.of_row(row):
                    sums[code, k, 0] += float(rows.weight[row]) * (p - int(rows.label[row]))
                    sums[code, k, 1] += float(rows.weight[row]) * p * (1 - p)
    return sums


def shift(rows: CodedRows, delta: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    moved = rows.offset.copy()
    for row in range(len(rows.label)):
        for code in rows.of_row(row):
            moved[row] += delta[code]
    return moved


def try_shifts(rows: CodedRows, deltas: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    losses = np.zeros(deltas.shape[2])
    for t in range(deltas.shape[2]):
        moved = shift(rows, deltas[:, :, t])
        for row in range(len(rows.label)):
            k = rows.fold[row]
            if k < rows.offset.shape[1]:
                losses[t] += float(rows.weight[row]) * loss(moved[row, k], rows.label[row])
    return losses


def total_loss(rows: CodedRows) -> np.ndarray[Any, Any]:
    losses = np.zeros((rows.offset.shape[1], 2))
    for row in range(len(rows.label)):
        for k in range(rows.offset.shape[1]):
            losses[k, int(rows.fold[row] == k)] += float(rows.weight[row]) * loss(rows.offset[row, k], rows.label[row])
    return losses


def count(rows: CodedRows) -> np.ndarray[Any, Any]:
    counts = np.zeros((rows.n_codes, rows.offset.shape[1]), int)
    for row in range(len(rows.label)):
        for k in range(rows.offset.shape[1]):
            if rows.learns(k, row):
                for code in rows.of_row(row):
                    counts[code, k] += 1
    return counts


def auc(label: list[int], score: list[float], weight: list[float]) -> float:
    """Every pair of a positive and a negative row."""
    won = total = 0.0
    for a, sa, wa in zip(label, score, weight, strict=True):
        for b, sb, wb in zip(label, score, weight, strict=True):
            if a == 1 and b == 0:
                total += wa * wb
                won += wa * wb * (1.0 if sa > sb else 0.5 if sa == sb else 0.0)
    return won / total if total else math.nan
