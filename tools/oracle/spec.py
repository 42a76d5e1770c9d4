"""Settings of a method as the engine writes them: name:key=value,key=value, with lists as a/b/c."""

from fractions import Fraction


class Settings:
    """Numbers are exact fractions, so that 0.9 means 9/10 in every count."""

    def __init__(self, text):
        if "+" in text.split(":")[0]:
            raise ValueError(f"{text}: the oracle has single methods, not compositions")
        self.name, _, rest = text.partition(":")
        self.values = {}
        while rest:
            key, _, rest = rest.partition("=")
            if rest.startswith('"'):
                value, _, rest = rest[1:].partition('"')
                rest = rest.removeprefix(",")
            else:
                value, _, rest = rest.partition(",")
            self.values[key] = value

    def text(self, key):
        return self.values[key]

    def integer(self, key):
        return int(self.values[key])

    def number(self, key):
        return Fraction(self.values[key])

    def integers(self, key):
        return [int(part) for part in self.values[key].split("/")]

    def numbers(self, key):
        return [Fraction(part) for part in self.values[key].split("/")]
