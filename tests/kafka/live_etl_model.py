"""The tables that the example of live ETL must write, made by plain Python from the records of its topics.

Owner: none (functions). It shares with the example only the records.
"""

from __future__ import annotations

import csv
import json
from collections import Counter
from collections.abc import Iterable
from typing import Any, NamedTuple

MINUTE = 60_000
CENTS = {"EUR": 100.0, "PLN": 23.0}


class Sale(NamedTuple):
    """An order with its payment, or without one; `at` is the time of the later one."""

    at: int
    customer: str
    cents: int
    method: str | None


class Model:
    """The tables that follow from records (topic, key, value, at)."""

    def __init__(self, records: Iterable[Any]) -> None:
        #: Topics of records that must be dead letters, and how many.
        self.letters: Counter[str] = Counter()
        orders: dict[int, tuple[int, str, int]] = {}
        payments: list[tuple[int, int, str]] = []
        self._customers: dict[str, list[tuple[int, str]]] = {}
        self._rules: dict[str, list[tuple[int, str | None, float | None]]] = {}
        for record in records:
            if record.topic == "payments":
                payments += self._payment(record)
                continue
            try:
                value = json.loads(record.value)
            except ValueError:
                self.letters[record.topic] += 1
                continue
            if record.topic == "orders":
                currency = value["currency"].strip().upper()
                if currency not in CENTS:
                    self.letters["orders"] += 1
                    continue
                cents = round(float(value["amount"]) * CENTS[currency])
                orders[value["order"]] = (record.at, value["customer"].lower(), cents)
            elif record.topic == "customers" and value:
                self._customers.setdefault(value["customer"], []).append((record.at, value["country"]))
            elif record.topic == "rules" and value:
                change = (record.at, value["method"], value["least"])
                self._rules.setdefault(value["rule"], []).append(change)
        self.turnover = self._turnover(self._sales(orders, payments))

    def _payment(self, record: Any) -> list[tuple[int, int, str]]:
        try:
            order, method, amount = next(csv.reader([record.value.decode()], delimiter=";"))
            float(amount)
            return [(int(order), record.at, method)]
        except ValueError:
            self.letters["payments"] += 1
            return []

    @staticmethod
    def _sales(orders: dict[int, tuple[int, str, int]], payments: list[tuple[int, int, str]]) -> list[Sale]:
        paid: dict[int, list[Sale]] = {}
        for number, at, method in payments:
            if number in orders:
                ordered, customer, cents = orders[number]
                if ordered <= at <= ordered + 10 * MINUTE:
                    paid.setdefault(number, []).append(Sale(at, customer, cents, method))
        unpaid = [Sale(*order, None) for number, order in orders.items() if number not in paid]
        return unpaid + [sale for sales in paid.values() for sale in sales]

    def _country(self, customer: str, at: int) -> str:
        known = [change for change in self._customers.get(customer, ()) if change[0] <= at]
        return max(known)[1] if known else "??"

    def _is_flagged(self, sale: Sale) -> bool:
        for changes in self._rules.values():
            valid = [change for change in changes if change[0] <= sale.at]
            if valid:
                _, method, least = max(valid, key=lambda change: change[0])
                if method is not None and method == sale.method and sale.cents >= (least or 0.0) * 100:
                    return True
        return False

    def _turnover(self, sales: list[Sale]) -> dict[str, dict[str, int]]:
        minutes: dict[str, dict[int, Counter[str]]] = {}
        for sale in sales:
            of_country = minutes.setdefault(self._country(sale.customer, sale.at), {})
            row = of_country.setdefault(sale.at // MINUTE, Counter(paid=0, unpaid=0, cents=0, flagged=0))
            if sale.method is None:
                row["unpaid"] += 1
            else:
                row.update(paid=1, cents=sale.cents, flagged=int(self._is_flagged(sale)))
        return {
            f"{country} {minute // 60 % 24:02}:{minute % 60:02}": dict(of_country[minute])
            for country, of_country in minutes.items()
            for minute in sorted(of_country)[-10:]
        }

    @property
    def standings(self) -> dict[str, dict[str, int]]:
        """The sums of the table of turnover by country."""
        sums: dict[str, Counter[str]] = {}
        for key, row in self.turnover.items():
            sums.setdefault(key[:2], Counter()).update(row)
        return {country: dict(row) for country, row in sums.items()}

    def printed(self) -> list[str]:
        """The lines of the table that the example prints; the lines of dead letters come behind them."""
        return [
            f"{country} {row['paid']} {row['unpaid']} {row['cents'] / 100:.2f} {row['flagged']}"
            for country, row in sorted(self.standings.items())
        ]
