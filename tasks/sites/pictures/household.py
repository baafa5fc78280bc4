"""Things in a house, one short function each; ``c`` is the thing's colour."""

from __future__ import annotations

from tasks.sites.pictures.pen import INK, RGB, STEEL, WOOD, Pen, dark, light


def mug(p: Pen, c: RGB) -> None:
    p.arc(58, 36, 90, 70, 270, 90, dark(c), 7)
    p.box(22, 26, 72, 86, c, 8)
    p.oval(22, 20, 72, 34, dark(c))
    p.oval(26, 22, 68, 32, (92, 62, 44))
    p.box(29, 40, 35, 78, light(c), 3)


def teapot(p: Pen, c: RGB) -> None:
    p.arc(66, 38, 96, 74, 260, 100, dark(c), 6)
    p.shape([(30, 56), (6, 38), (12, 34), (34, 44)], dark(c))
    p.oval(22, 32, 78, 84, c)
    p.oval(36, 26, 64, 42, dark(c))
    p.oval(46, 18, 54, 28, c)
    p.oval(32, 42, 44, 60, light(c))


def bowl(p: Pen, c: RGB) -> None:
    p.pie(10, 8, 90, 84, 0, 180, c)
    p.oval(10, 38, 90, 54, dark(c))
    p.oval(16, 41, 84, 51, light(c))
    p.box(38, 80, 62, 88, dark(c), 2)


def bottle(p: Pen, c: RGB) -> None:
    p.box(42, 8, 58, 18, dark(c), 3)
    p.box(44, 16, 56, 36, light(c, 0.2))
    p.box(32, 32, 68, 92, c, 10)
    p.box(32, 52, 68, 74, light(c, 0.75))
    p.box(36, 38, 40, 50, light(c), 2)


def pan(p: Pen, c: RGB) -> None:
    p.box(60, 50, 98, 58, WOOD, 4)
    p.pie(4, 32, 72, 84, 0, 180, dark(c))
    p.oval(4, 42, 72, 74, c)
    p.oval(12, 47, 64, 69, dark(c, 0.45))


def lamp(p: Pen, c: RGB) -> None:
    p.oval(30, 82, 70, 92, dark(c))
    p.box(47, 46, 53, 86, STEEL)
    p.oval(40, 46, 60, 58, (255, 236, 170))
    p.shape([(36, 14), (64, 14), (82, 52), (18, 52)], c)
    p.shape([(42, 16), (48, 16), (38, 50), (28, 50)], light(c))


def lantern(p: Pen, c: RGB) -> None:
    p.arc(34, 4, 66, 36, 180, 360, INK, 3)
    p.shape([(30, 30), (50, 16), (70, 30)], dark(c))
    p.box(30, 30, 70, 82, c, 3)
    p.box(36, 36, 64, 76, (255, 240, 190), 2)
    p.shape([(50, 44), (57, 62), (50, 72), (43, 62)], (238, 150, 50))
    p.box(26, 80, 74, 88, dark(c), 2)


def candle(p: Pen, c: RGB) -> None:
    p.oval(18, 78, 82, 94, STEEL)
    p.box(38, 38, 62, 88, c, 3)
    p.oval(38, 33, 62, 43, light(c))
    p.line([(50, 38), (50, 28)], INK, 2)
    p.shape([(50, 8), (57, 24), (50, 32), (43, 24)], (244, 170, 60))


def chair(p: Pen, c: RGB) -> None:
    for x in (28, 66):
        p.box(x, 58, x + 6, 94, WOOD)
    p.box(26, 8, 74, 54, c, 6)
    p.box(36, 16, 42, 48, dark(c))
    p.box(58, 16, 64, 48, dark(c))
    p.shape([(26, 54), (74, 54), (82, 64), (18, 64)], light(c, 0.15))
    p.box(18, 64, 24, 94, dark(WOOD))
    p.box(76, 64, 82, 94, dark(WOOD))


def table(p: Pen, c: RGB) -> None:
    p.box(14, 44, 20, 88, dark(c))
    p.box(80, 44, 86, 88, dark(c))
    p.box(28, 44, 33, 78, dark(c, 0.4))
    p.box(67, 44, 72, 78, dark(c, 0.4))
    p.shape([(18, 32), (82, 32), (94, 42), (6, 42)], light(c, 0.2))
    p.box(6, 42, 94, 49, c, 1)


def sofa(p: Pen, c: RGB) -> None:
    p.box(14, 28, 86, 70, dark(c), 10)
    p.box(20, 34, 49, 62, c, 6)
    p.box(51, 34, 80, 62, c, 6)
    p.box(16, 58, 84, 78, light(c, 0.15), 4)
    p.box(4, 44, 20, 82, c, 7)
    p.box(80, 44, 96, 82, c, 7)
    p.box(10, 82, 16, 90, WOOD)
    p.box(84, 82, 90, 90, WOOD)


def shelf(p: Pen, c: RGB) -> None:
    p.box(16, 6, 84, 94, c, 2)
    for row, y in enumerate((12, 40, 68)):
        p.box(22, y, 78, y + 22, light(c, 0.72))
        for book in range(4):
            x = 25 + book * 9 + row * 4
            hue = ((190, 90, 80), (90, 130, 170), (210, 180, 100), (110, 150, 110))[(book + row) % 4]
            p.box(x, y + 4 + (book % 2) * 3, x + 7, y + 22, hue)


def clock(p: Pen, c: RGB) -> None:
    p.oval(12, 12, 88, 88, c)
    p.oval(20, 20, 80, 80, (252, 250, 244))
    for x, y in ((50, 24), (76, 50), (50, 76), (24, 50)):
        p.oval(x - 2.5, y - 2.5, x + 2.5, y + 2.5, INK)
    p.line([(50, 50), (50, 30)], INK, 4)
    p.line([(50, 50), (66, 58)], INK, 4)
    p.oval(46, 46, 54, 54, dark(c))


def notebook(p: Pen, c: RGB) -> None:
    p.box(26, 14, 82, 90, (250, 247, 238), 3)
    p.box(22, 10, 78, 88, c, 4)
    p.box(22, 10, 32, 88, dark(c), 3)
    p.box(42, 24, 70, 40, light(c, 0.75), 2)
    p.line([(70, 10), (70, 88)], dark(c, 0.5), 2)


def radio(p: Pen, c: RGB) -> None:
    p.line([(72, 34), (90, 6)], STEEL, 3)
    p.box(8, 34, 92, 84, c, 8)
    p.oval(16, 42, 52, 78, dark(c))
    p.oval(24, 50, 44, 70, dark(c, 0.5))
    p.box(58, 44, 86, 54, (252, 244, 214), 2)
    p.oval(60, 62, 70, 72, light(c))
    p.oval(75, 62, 85, 72, light(c))


def headphones(p: Pen, c: RGB) -> None:
    p.arc(16, 14, 84, 92, 180, 360, dark(c), 8)
    p.box(10, 50, 30, 86, c, 8)
    p.box(70, 50, 90, 86, c, 8)
    p.box(26, 54, 34, 82, dark(c, 0.5), 3)
    p.box(66, 54, 74, 82, dark(c, 0.5), 3)


def camera(p: Pen, c: RGB) -> None:
    p.box(34, 22, 66, 36, dark(c), 4)
    p.box(8, 32, 92, 82, c, 8)
    p.oval(32, 36, 72, 78, dark(c, 0.55))
    p.oval(40, 44, 64, 70, (116, 150, 186))
    p.oval(44, 48, 52, 56, (214, 230, 244))
    p.box(14, 38, 26, 46, light(c), 2)


def laptop(p: Pen, c: RGB) -> None:
    p.box(18, 18, 82, 68, c, 4)
    p.box(23, 23, 77, 63, (206, 224, 238), 1)
    p.box(28, 30, 52, 34, (120, 150, 180))
    p.box(28, 40, 68, 43, (160, 180, 200))
    p.shape([(18, 68), (82, 68), (96, 84), (4, 84)], light(c, 0.2))
    p.shape([(42, 78), (58, 78), (60, 83), (40, 83)], dark(c))


def television(p: Pen, c: RGB) -> None:
    p.line([(50, 24), (34, 6)], INK, 2)
    p.line([(50, 24), (66, 6)], INK, 2)
    p.box(6, 22, 94, 84, c, 6)
    p.box(13, 29, 72, 77, (52, 66, 80), 5)
    p.shape([(18, 34), (40, 34), (26, 62), (18, 62)], (92, 112, 130))
    p.oval(78, 34, 88, 44, light(c))
    p.oval(78, 50, 88, 60, light(c))
    p.box(20, 84, 28, 92, INK)
    p.box(72, 84, 80, 92, INK)


THINGS = {
    function.__name__: function
    for function in (
        mug, teapot, bowl, bottle, pan, lamp, lantern, candle, chair, table, sofa, shelf, clock, notebook, radio,
        headphones, camera, laptop, television,
    )
}  # fmt: skip
