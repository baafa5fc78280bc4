"""The kinds of things that are drawn, sold and talked about."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Kind:
    """One kind: what it is called, where it is shelved, what it is made of, what it costs, weighs and is praised for.

    ``price`` is in dollars, ``weight`` in grams, ``height`` in centimetres: lowest and highest.
    """

    label: str
    shelf: str
    styles: tuple[str, ...]
    materials: tuple[str, ...]
    price: tuple[int, int]
    weight: tuple[int, int]
    height: tuple[int, int]
    aspects: tuple[str, ...]
    use: str


_CLAY = ("stoneware", "porcelain", "earthenware", "enamelled steel")
_WOODS = ("oak", "beech", "walnut", "pine", "ash")
_CLOTH = ("waxed cotton", "canvas", "recycled nylon", "wool felt", "linen")

KINDS: dict[str, Kind] = {
    "mug": Kind("Mug", "Kitchen", ("Stackable", "Wide", "Morning", "Half-Pint"), _CLAY, (7, 28), (240, 460), (8, 12),
                ("the handle", "the glaze", "the rim", "the size"), "tea, coffee and soup"),
    "teapot": Kind("Teapot", "Kitchen", ("Round", "Low", "Family", "Two-Cup"), _CLAY, (24, 72), (520, 1300), (12, 19),
                   ("the spout", "the lid", "the strainer", "the handle"), "slow afternoons"),
    "bowl": Kind("Bowl", "Kitchen", ("Serving", "Ramen", "Breakfast", "Deep"), (*_CLAY, "bamboo"), (9, 46), (300, 900),
                 (6, 13), ("the depth", "the glaze", "the foot", "the weight"), "salads, noodles and fruit"),
    "bottle": Kind("Bottle", "Kitchen", ("Flask", "Swing-Top", "Trail", "Desk"), ("glass", "steel", "recycled glass"),
                   (11, 38), (180, 620), (20, 31), ("the cap", "the seal", "the neck", "the coating"), "long walks"),
    "lamp": Kind("Lamp", "Lighting", ("Reading", "Bedside", "Studio", "Bankers"), ("brass", "steel", *_WOODS[:3]),
                 (29, 118), (900, 3200), (28, 56), ("the shade", "the switch", "the cable", "the light"),
                  "late readers"),
    "lantern": Kind("Lantern", "Lighting", ("Storm", "Camping", "Garden", "Porch"), ("tin", "brass", "steel"), (19, 84),
                    (500, 1800), (18, 38), ("the flame", "the handle", "the glass", "the battery"),
                     "porches and tents"),
    "candle": Kind("Candle", "Lighting", ("Pillar", "Dinner", "Honey", "Evening"),
                   ("beeswax", "soy wax", "rapeseed wax"),
                   (6, 32), (150, 900), (8, 24), ("the scent", "the burn time", "the wick", "the colour"),
                    "dark evenings"),
    "chair": Kind("Chair", "Furniture", ("Dining", "Spindle", "Folding", "Kitchen"), _WOODS, (48, 240), (3800, 8200),
                  (78, 98), ("the seat", "the back", "the joints", "the assembly"), "the long table"),
    "table": Kind("Table", "Furniture", ("Side", "Writing", "Drop-Leaf", "Trestle"), _WOODS, (75, 420), (6500, 28000),
                  (45, 76), ("the top", "the legs", "the finish", "the assembly"), "small rooms"),
    "sofa": Kind("Sofa", "Furniture", ("Two-Seat", "Corner", "Reading", "Guest"), ("linen", "velvet", "wool"),
                 (320, 990),
                 (28000, 62000), (74, 92), ("the cushions", "the fabric", "the depth", "the legs"), "film nights"),
    "shelf": Kind("Bookcase", "Furniture", ("Narrow", "Low", "Open", "Stepped"), _WOODS, (64, 310), (9000, 32000),
                  (80, 190), ("the boards", "the back panel", "the fixings", "the finish"), "heavy books"),
    "backpack": Kind("Backpack", "Bags & Travel", ("City", "Roll-Top", "Day", "Weekend"), _CLOTH, (38, 165),
                     (480, 1500),
                     (38, 58), ("the straps", "the zips", "the pockets", "the lining"), "commutes and hills"),
    "suitcase": Kind("Suitcase", "Bags & Travel", ("Cabin", "Long-Trip", "Soft", "Retro"), ("polycarbonate", "canvas"),
                     (59, 260), (1900, 4600), (50, 78), ("the wheels", "the lock", "the handle", "the shell"),
                      "trains"),
    "umbrella": Kind("Umbrella", "Bags & Travel", ("Compact", "Walking", "Storm", "Golf"),
                     ("pongee", "cotton", "nylon"),
                     (14, 62), (280, 780), (28, 96), ("the ribs", "the handle", "the opening", "the canopy"), "rain"),
    "tent": Kind("Tent", "Bags & Travel", ("Two-Person", "Ridge", "Tunnel", "Festival"), ("ripstop nylon", "canvas"),
                 (79, 395), (1700, 9800), (100, 195), ("the poles", "the pegs", "the porch", "the zip"),
                  "windy pitches"),
    "hat": Kind("Hat", "Clothing", ("Felt", "Rain", "Wide-Brim", "Travel"), ("wool felt", "waxed cotton", "straw"),
                (18, 88), (90, 260), (10, 16), ("the brim", "the fit", "the band", "the shape"), "sun and drizzle"),
    "boot": Kind("Boot", "Clothing", ("Ankle", "Hiking", "Garden", "Winter"), ("leather", "suede", "natural rubber"),
                 (45, 210), (900, 1900), (16, 34), ("the sole", "the laces", "the lining", "the fit"), "muddy paths"),
    "shirt": Kind("Shirt", "Clothing", ("Work", "Summer", "Camp", "Oxford"), ("cotton", "linen", "hemp"), (22, 96),
                  (160, 380), (68, 82), ("the collar", "the buttons", "the cut", "the fabric"), "warm offices"),
    "notebook": Kind("Notebook", "Desk & Paper", ("Dotted", "Ruled", "Sketch", "Pocket"), ("cloth", "leather", "card"),
                     (5, 34), (120, 520), (14, 30), ("the paper", "the binding", "the elastic", "the cover"), "lists"),
    "clock": Kind("Wall Clock", "Desk & Paper", ("Station", "Quiet", "Kitchen", "School"), ("steel", "oak", "bakelite"),
                  (22, 135), (450, 1900), (20, 40), ("the hands", "the ticking", "the dial", "the hook"),
                   "busy mornings"),
    "radio": Kind("Radio", "Sound", ("Kitchen", "Portable", "Shortwave", "Bedside"),
                  ("bakelite", "walnut", "aluminium"),
                  (35, 190), (600, 2600), (12, 24), ("the sound", "the dial", "the aerial", "the battery"),
                   "news at seven"),
    "headphones": Kind("Headphones", "Sound", ("Over-Ear", "Studio", "Folding", "Travel"), ("aluminium", "steel"),
                       (39, 280), (180, 390), (16, 21), ("the bass", "the pads", "the cable", "the case"),
                        "noisy trains"),
    "guitar": Kind("Guitar", "Sound", ("Parlour", "Classical", "Travel", "Dreadnought"),
                   ("spruce", "cedar", "mahogany"),
                   (95, 640), (1200, 2400), (88, 106), ("the neck", "the tuners", "the tone", "the action"),
                    "campfires"),
    "drum": Kind("Drum", "Sound", ("Snare", "Floor", "Hand", "Parade"), ("birch", "maple", "steel"), (58, 330),
                 (2100, 6900), (14, 42), ("the skin", "the tone", "the lugs", "the sticks"), "patient neighbours"),
    "plant": Kind("Potted Plant", "Garden", ("Rubber", "Shade", "Window", "Desk"), ("terracotta", "stoneware", "zinc"),
                  (9, 68), (700, 4200), (18, 85), ("the leaves", "the pot", "the roots", "the packing"),
                   "north windows"),
    "watering-can": Kind("Watering Can", "Garden", ("Long-Spout", "Balcony", "Greenhouse", "Indoor"),
                         ("zinc", "steel", "recycled plastic"), (12, 58), (350, 1600), (18, 40),
                         ("the rose", "the balance", "the handle", "the spout"), "seedlings"),
    "birdhouse": Kind("Birdhouse", "Garden", ("Gable", "Open-Front", "Sparrow", "Balcony"), ("cedar", "larch", "oak"),
                      (16, 74), (650, 2400), (20, 36), ("the roof", "the hinge", "the hole", "the perch"),
                       "tits and wrens"),
    "ball": Kind("Ball", "Play", ("Beach", "Street", "School", "Handball"), ("rubber", "leather", "vinyl"), (6, 42),
                 (120, 480), (15, 30), ("the bounce", "the grip", "the valve", "the seams"), "car parks and beaches"),
    "kite": Kind("Kite", "Play", ("Diamond", "Stunt", "First", "Harbour"), ("ripstop nylon", "paper", "cotton"),
                 (12, 78),
                 (110, 540), (60, 140), ("the line", "the tail", "the frame", "the lift"), "steady wind"),
    "sailboat": Kind("Model Sailboat", "Play", ("Pond", "Shelf", "Racing", "Bathtub"), ("balsa", "pine", "tin"),
                     (15, 120),
                     (200, 1500), (18, 62), ("the sails", "the keel", "the rigging", "the paint"), "duck ponds"),
}  # fmt: skip

COLOURS = ("red", "orange", "yellow", "green", "teal", "blue", "purple", "pink", "brown", "grey", "white", "black")
