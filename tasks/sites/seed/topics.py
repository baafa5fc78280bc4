"""What the forum's boards talk about."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Topic:
    """A board: its address, name, what it is for, its own rule, and the words of its talk."""

    slug: str
    name: str
    about: str
    rule: str
    subjects: tuple[str, ...]
    troubles: tuple[str, ...]
    tips: tuple[str, ...]
    scene: str


TOPICS = (
    Topic("bread", "Bread and Baking", "Loaves, rolls and the patience they need.", "Give weights in grams.",
          ("sourdough", "rye loaves", "flatbread", "brioche", "oat bread", "baguettes", "cinnamon rolls", "focaccia"),
          ("a crust that stays soft", "a crumb full of holes", "dough that will not rise", "a burnt bottom"),
          ("let the dough rest {n} hours in the fridge", "bake at {temp} degrees with the lid on",
           "use {pct} percent water", "turn the tin after {n} minutes"), "village"),
    Topic("cycling", "Two Wheels", "Commuting, touring and repairs.", "No sales: use the classifieds.",
          ("winter commuting", "cargo bikes", "wheel building", "long tours", "disc brakes", "old steel frames",
           "hub gears", "night rides"),
          ("a chain that skips", "cold hands", "a creaking bottom bracket", "punctures every week"),
          ("pump the tyres to {n}0 psi", "change the chain every {pct}00 km", "carry {few} spare spokes",
           "grease the bolt every {few} months"), "mountains"),
    Topic("gardening", "Allotment and Balcony", "Growing food and flowers in small places.",
          "Say which zone you are in.",
          ("tomatoes", "runner beans", "balcony herbs", "compost", "dahlias", "garlic", "raised beds", "cold frames"),
          ("slugs", "yellow leaves", "late frost", "seeds that rot"),
          ("sow them {few} weeks before the last frost", "water only every {few} days",
           "feed with nettle brew 1 to {n}",
           "leave {pct} cm between the rows"), "meadow"),
    Topic("sailing", "Harbour Talk", "Small boats, weather and knots.", "Weather questions need a place and a date.",
          ("dinghies", "anchoring", "tide tables", "old diesel engines", "knots", "single-handed trips", "varnish",
           "night passages"),
          ("a mast that hums", "fouled anchors", "a wet bilge", "seasick crew"),
          ("let out {few} times the depth", "reef at {n} knots", "give it {few} coats",
           "check the stuffing box monthly"),
          "harbour"),
    Topic("photography", "Light and Lens", "Pictures, cameras and darkrooms.", "Tell the lens and the exposure.",
          ("film cameras", "night pictures", "portraits by a window", "street pictures", "scanning", "pinhole cameras",
           "old lenses", "bird pictures"),
          ("blurred pictures", "grey skies", "dust on the sensor", "light leaks"),
          ("expose for {few} seconds", "stop down to f/{n}", "keep the film {few} minutes in the tank",
           "meter {few} stops over"), "city"),
    Topic("repair", "Fix It Café", "Mend it before you replace it.", "Unplug it first.",
          ("toasters", "zips", "wobbly chairs", "radios", "washing machines", "clocks", "vacuum cleaners", "lamps"),
          ("a fuse that blows", "a screw without a head", "parts nobody sells", "glue that does not hold"),
          ("the part number ends in {pct}", "heat it to {temp} degrees", "press it for {n} minutes",
           "the spring needs {few} turns"), "village"),
    Topic("hiking", "Paths and Huts", "Walks of a day or a month.", "Mark closed paths in the title.",
          ("the coast path", "hut to hut", "winter walks", "night hikes", "walking with children", "ultralight packs",
           "the ridge trail", "forest walks"),
          ("blisters", "a wet tent", "closed huts", "too heavy a pack"),
          ("start at {few} in the morning", "plan {n} km a day", "the hut has {pct} beds",
           "take {few} litres of water"),
          "forest"),
    Topic("chess", "Sixty-Four Squares", "Games, puzzles and club life.", "Use algebraic notation.",
          ("rook endings", "the Dutch Defence", "club nights", "blitz", "correspondence games", "opening books",
           "simultaneous games", "children's chess"),
          ("losing on time", "blunders on move forty", "boring draws", "a stronger little brother"),
          ("solve {n} puzzles a day", "keep {few} minutes for the ending", "play the line with {few}...c5",
           "the club meets in room {pct}"), "city"),
    Topic("birds", "Feathers", "Watching, feeding and ringing birds.", "No exact nest sites.",
          ("swifts", "garden feeders", "owl boxes", "gulls", "spring migration", "bird calls", "ducks", "kestrels"),
          ("cats", "squirrels at the feeder", "foggy binoculars", "an empty nest box"),
          ("hang the box {few} metres high", "come at {few} in the morning", "the hole must be {pct} mm",
           "we counted {pct} of them in {month}"), "forest"),
    Topic("travel", "Slow Travel", "Trains, ferries and staying longer.", "No flight deals.",
          ("night trains", "ferries", "house swaps", "travel with a dog", "rail passes", "island winters",
           "language courses", "packing light"),
          ("missed connections", "closed ticket offices", "noisy cabins", "wet shoes"),
          ("book {pct} days ahead", "the fare was ${n}", "change in {town}", "allow {n} minutes for the change"),
          "balloons"),
    Topic("books", "Reading Room", "What we read and why.", "Hide endings behind a warning.",
          ("long novels", "reading groups", "crime stories", "poetry", "translations", "second-hand shops",
           "books for children", "travel books"),
          ("giving up on page fifty", "tiny print", "spoilers", "too many unread books"),
          ("read {n} pages a day", "start with chapter {few}", "the group meets on day {n} of the month",
           "there are {few} translations"),
          "beach"),
    Topic("neighbours", "Town Square", "News and help from the twelve towns.", "Be kind, use your town.",
          ("the market", "bus line 7", "the swimming pool", "street parties", "the library", "lost keys",
           "the old mill",
           "noise at night"),
          ("missing bins", "dark streets", "empty shops", "early closing"),
          ("the office opens at {few}", "bring {few} chairs", "the meeting is in room {pct}", "call extension {pct}"),
          "beach"),
)  # fmt: skip
