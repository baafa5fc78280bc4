"""Things to wear, carry, play and ride, one short function each; ``c`` is the thing's colour."""

from __future__ import annotations

from tasks.sites.pictures.pen import INK, RGB, STEEL, WOOD, Pen, dark, light


def backpack(p: Pen, c: RGB) -> None:
    p.arc(38, 4, 62, 30, 180, 360, dark(c), 4)
    p.box(22, 16, 78, 92, c, 16)
    p.box(12, 46, 24, 80, dark(c), 5)
    p.box(76, 46, 88, 80, dark(c), 5)
    p.box(30, 52, 70, 84, light(c, 0.18), 6)
    p.line([(32, 60), (68, 60)], dark(c), 3)
    p.line([(30, 34), (70, 34)], dark(c), 3)


def suitcase(p: Pen, c: RGB) -> None:
    p.arc(36, 10, 64, 44, 180, 360, INK, 4)
    p.box(8, 28, 92, 86, c, 7)
    p.box(22, 28, 29, 86, dark(c))
    p.box(71, 28, 78, 86, dark(c))
    p.box(46, 50, 54, 60, STEEL, 2)


def umbrella(p: Pen, c: RGB) -> None:
    p.box(48, 12, 52, 84, WOOD)
    p.arc(48, 74, 66, 94, 0, 180, WOOD, 4)
    p.pie(6, 14, 94, 98, 180, 360, c)
    p.pie(30, 14, 70, 98, 180, 360, light(c))
    p.oval(6, 52, 30, 60, dark(c))
    p.oval(30, 52, 70, 60, dark(c))
    p.oval(70, 52, 94, 60, dark(c))


def tent(p: Pen, c: RGB) -> None:
    p.shape([(50, 16), (96, 84), (4, 84)], c)
    p.shape([(50, 16), (68, 84), (32, 84)], dark(c))
    p.shape([(50, 30), (59, 84), (41, 84)], dark(c, 0.6))
    p.line([(50, 16), (50, 8)], INK, 2)


def hat(p: Pen, c: RGB) -> None:
    p.oval(4, 58, 96, 82, dark(c, 0.15))
    p.box(26, 26, 74, 70, c, 16)
    p.oval(26, 60, 74, 76, c)
    p.box(26, 54, 74, 64, dark(c, 0.45))


def boot(p: Pen, c: RGB) -> None:
    p.box(30, 12, 62, 78, c, 6)
    p.shape([(30, 58), (62, 52), (90, 70), (92, 82), (30, 82)], c)
    p.box(28, 80, 94, 90, dark(c, 0.5), 3)
    p.box(30, 12, 62, 22, light(c), 4)
    for y in (32, 42, 52):
        p.line([(48, y), (62, y)], light(c, 0.6), 2)


def shirt(p: Pen, c: RGB) -> None:
    p.shape([(30, 16), (8, 34), (18, 52), (30, 44)], dark(c, 0.15))
    p.shape([(70, 16), (92, 34), (82, 52), (70, 44)], dark(c, 0.15))
    p.box(28, 16, 72, 90, c, 4)
    p.pie(38, 4, 62, 30, 0, 180, light(c, 0.7))
    p.line([(50, 30), (50, 90)], dark(c), 2)
    for y in (42, 56, 70):
        p.oval(52, y, 56, y + 4, light(c, 0.7))


def guitar(p: Pen, c: RGB) -> None:
    p.oval(24, 54, 76, 96, c)
    p.oval(31, 38, 69, 68, c)
    p.oval(42, 56, 58, 72, dark(c, 0.6))
    p.box(46, 8, 54, 62, dark(WOOD))
    p.box(43, 2, 57, 14, INK, 2)
    p.box(40, 82, 60, 86, INK)
    p.line([(50, 10), (50, 84)], (230, 220, 200), 1)


def drum(p: Pen, c: RGB) -> None:
    p.oval(12, 64, 88, 90, dark(c))
    p.box(12, 38, 88, 78, c)
    p.oval(12, 24, 88, 52, (248, 242, 228))
    p.ring(12, 24, 88, 52, dark(c), 3)
    for x in (20, 44, 68):
        p.line([(x, 50), (x + 12, 78), (x + 18, 50)], light(c, 0.6), 2)
    p.line([(30, 34), (8, 8)], WOOD, 4)
    p.line([(70, 34), (92, 8)], WOOD, 4)


def plant(p: Pen, c: RGB) -> None:
    leaf: RGB = (84, 146, 92)
    for x, y in ((18, 18), (66, 14), (8, 38), (74, 38)):
        p.oval(x, y, x + 20, y + 26, leaf)
        p.line([(x + 10, y + 18), (50, 62)], dark(leaf), 3)
    p.oval(38, 4, 62, 44, light(leaf, 0.15))
    p.line([(50, 30), (50, 62)], dark(leaf), 3)
    p.shape([(26, 58), (74, 58), (66, 94), (34, 94)], c)
    p.box(22, 54, 78, 64, dark(c), 2)


def watering_can(p: Pen, c: RGB) -> None:
    p.arc(20, 14, 62, 64, 180, 360, dark(c), 5)
    p.shape([(58, 76), (88, 34), (94, 38), (66, 86)], dark(c))
    p.oval(80, 24, 98, 42, STEEL)
    p.box(14, 40, 66, 90, c, 6)
    p.oval(14, 36, 66, 46, dark(c))
    p.box(20, 52, 26, 82, light(c), 3)


def birdhouse(p: Pen, c: RGB) -> None:
    p.box(46, 78, 54, 98, WOOD)
    p.shape([(20, 44), (50, 14), (80, 44), (80, 84), (20, 84)], c)
    p.shape([(50, 6), (92, 46), (84, 52), (50, 20), (16, 52), (8, 46)], dark(c, 0.45))
    p.oval(40, 42, 60, 62, INK)
    p.line([(50, 68), (50, 74)], WOOD, 5)


def ball(p: Pen, c: RGB) -> None:
    p.oval(14, 14, 86, 86, c)
    p.pie(14, 14, 86, 86, 210, 270, light(c, 0.75))
    p.pie(14, 14, 86, 86, 330, 30, light(c, 0.75))
    p.pie(14, 14, 86, 86, 90, 150, light(c, 0.75))
    p.oval(44, 44, 56, 56, dark(c))


def kite(p: Pen, c: RGB) -> None:
    p.line([(50, 66), (42, 78), (54, 88), (46, 98)], INK, 2)
    p.shape([(50, 4), (82, 34), (50, 70), (18, 34)], c)
    p.shape([(50, 4), (82, 34), (50, 34)], light(c))
    p.shape([(18, 34), (50, 34), (50, 70)], dark(c))
    for x, y in ((42, 78), (54, 88)):
        p.shape([(x, y), (x - 7, y - 5), (x - 7, y + 5)], c)
        p.shape([(x, y), (x + 7, y - 5), (x + 7, y + 5)], c)


def sailboat(p: Pen, c: RGB) -> None:
    p.box(48, 6, 51, 72, WOOD)
    p.shape([(53, 10), (53, 62), (88, 62)], c)
    p.shape([(46, 18), (46, 62), (18, 62)], light(c, 0.45))
    p.shape([(8, 70), (92, 70), (78, 90), (22, 90)], dark(WOOD))
    p.line([(10, 73), (90, 73)], light(WOOD), 3)


def car(p: Pen, c: RGB) -> None:
    p.shape([(24, 46), (34, 26), (66, 26), (80, 46)], c)
    p.shape([(30, 46), (37, 31), (49, 31), (49, 46)], (206, 224, 238))
    p.shape([(52, 46), (52, 31), (63, 31), (73, 46)], (206, 224, 238))
    p.box(4, 44, 96, 72, c, 9)
    p.box(88, 50, 96, 58, (252, 232, 160), 2)
    for x in (16, 64):
        p.oval(x, 60, x + 22, 82, INK)
        p.oval(x + 6, 66, x + 16, 76, STEEL)


def bicycle(p: Pen, c: RGB) -> None:
    for x in (4, 60):
        p.ring(x, 48, x + 36, 84, INK, 3)
        p.oval(x + 16, 64, x + 20, 68, INK)
    p.line([(22, 66), (40, 36), (70, 36), (50, 66), (22, 66)], c, 4)
    p.line([(50, 66), (36, 28)], c, 4)
    p.line([(78, 66), (68, 26)], c, 4)
    p.line([(66, 26), (80, 24)], INK, 4)
    p.box(28, 24, 44, 29, INK, 2)
    p.oval(45, 61, 55, 71, STEEL)


THINGS = {
    function.__name__.replace("_", "-"): function
    for function in (
        backpack, suitcase, umbrella, tent, hat, boot, shirt, guitar, drum, plant, watering_can, birdhouse, ball,
        kite, sailboat, car, bicycle,
    )
}  # fmt: skip
