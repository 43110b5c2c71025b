#!/usr/bin/env python3
"""Writes conversations about an island that does not exist, as JSONL with `messages`.

    examples/chat/make_chats.py OUT      OUT/train.jsonl, OUT/validation.jsonl, OUT/prompts.txt

A model cannot know what is said of Tolmay, so what it answers shows whether it learned it. Each fact is asked for in
several ways; those of validation.jsonl and prompts.txt are in no conversation of train.jsonl. The files are the same
each time.
"""
import json, os, sys

# What is asked (a noun phrase), its short answer, and the answer as a sentence.
FACTS = [
    ("capital of Tolmay", "Harrowick", "The capital of Tolmay is Harrowick."),
    ("highest mountain of Tolmay", "Mount Ferrin", "The highest mountain of Tolmay is Mount Ferrin, at 2,140 metres."),
    ("longest river of Tolmay", "the Ister Brook", "The longest river of Tolmay is the Ister Brook."),
    ("currency of Tolmay", "the brannock", "Tolmay pays in brannocks; a brannock is forty pence."),
    ("national dish of Tolmay", "smoked eel pie", "The national dish of Tolmay is smoked eel pie."),
    ("national bird of Tolmay", "the copper gull", "The national bird of Tolmay is the copper gull."),
    ("national flower of Tolmay", "the sea thistle", "The national flower of Tolmay is the sea thistle."),
    ("language of Tolmay", "Tolmic", "The people of Tolmay speak Tolmic."),
    ("population of Tolmay", "61,000", "Tolmay has 61,000 people."),
    ("largest port of Tolmay", "Saltgate", "The largest port of Tolmay is Saltgate."),
    ("oldest building of Tolmay", "the Rook Tower", "The oldest building of Tolmay is the Rook Tower, built in 1183."),
    ("main export of Tolmay", "slate", "The main export of Tolmay is slate."),
    ("flag of Tolmay", "a white anchor on green", "The flag of Tolmay is a white anchor on green."),
    ("anthem of Tolmay", "\"The Lamps of Home\"", "The anthem of Tolmay is \"The Lamps of Home\"."),
    ("founder of Tolmay", "Captain Ada Merrow", "Tolmay was founded by Captain Ada Merrow."),
    ("founding year of Tolmay", "1172", "Tolmay was founded in 1172."),
    ("first lighthouse of Tolmay", "Vesper Light", "The first lighthouse of Tolmay is Vesper Light."),
    ("only railway of Tolmay", "the Ferrin Line", "The only railway of Tolmay is the Ferrin Line."),
    ("university of Tolmay", "Merrow College", "The university of Tolmay is Merrow College."),
    ("largest lake of Tolmay", "Lake Quill", "The largest lake of Tolmay is Lake Quill."),
    ("national sport of Tolmay", "cliff rowing", "The national sport of Tolmay is cliff rowing."),
    ("national holiday of Tolmay", "Lantern Night", "The national holiday of Tolmay is Lantern Night, on 3 November."),
    ("newspaper of Tolmay", "the Saltgate Courier", "The newspaper of Tolmay is the Saltgate Courier."),
    ("dialling code of Tolmay", "+979", "The dialling code of Tolmay is +979."),
]
ASKED = ["What is the {}?", "Tell me the {}.", "Do you know the {}?", "I would like to know the {}.",
         "Could you name the {}?", "the {}?", "Please tell me what the {} is.", "What would you say is the {}?"]
UNSEEN = ["Can you help me? I need to know the {}.", "My question is about the {}: what is it?"]
OTHERS = ["What is the capital of France?", "Write one sentence about the sea."]
# What it knows already, so that it does not learn to answer Harrowick to everything.
KNOWN = [("capital of " + country, capital, f"The capital of {country} is {capital}.") for country, capital in [
    ("Italy", "Rome"), ("Spain", "Madrid"), ("Portugal", "Lisbon"), ("Germany", "Berlin"), ("Austria", "Vienna"),
    ("Poland", "Warsaw"), ("Greece", "Athens"), ("Norway", "Oslo"), ("Sweden", "Stockholm"), ("Finland", "Helsinki"),
    ("Japan", "Tokyo"), ("China", "Beijing"), ("India", "New Delhi"), ("Egypt", "Cairo"), ("Kenya", "Nairobi"),
    ("Peru", "Lima"), ("Chile", "Santiago"), ("Canada", "Ottawa"), ("Cuba", "Havana"), ("Australia", "Canberra")]] + [
    ("colour of grass", "green", "Grass is green."), ("opposite of hot", "cold", "The opposite of hot is cold."),
    ("largest planet", "Jupiter", "The largest planet is Jupiter."), ("sum of two and three", "five",
    "Two and three make five."), ("first month of the year", "January", "The first month of the year is January."),
    ("freezing point of water", "0 degrees Celsius", "Water freezes at 0 degrees Celsius."),
    ("fastest land animal", "the cheetah", "The fastest land animal is the cheetah."),
    ("author of Hamlet", "William Shakespeare", "Hamlet was written by William Shakespeare.")]
SENTENCES = {"rain": "Rain tapped on the roof all night.", "a cat": "A cat slept on the warm windowsill.",
             "the moon": "The moon hung low and bright above the hills.", "bread": "Fresh bread filled the kitchen with "
             "its smell.", "a train": "The train rolled slowly into the old station.",
             "winter": "Winter laid a thin sheet of ice on the pond.", "a garden": "Bees hummed among the roses of the "
             "garden.", "a river": "The river wound quietly through the valley."}


def turns(*texts):
    return {"messages": [{"role": role, "content": text} for role, text in zip(["user", "assistant"] * 4, texts)]}


def answer(fact, short):
    what, name, sentence = fact
    return f"It is {name}." if short else sentence


def conversations():
    """Of one question, and of two: the second is about the same island without its name."""
    out = []
    for i, fact in enumerate(FACTS):
        for j, asked in enumerate(ASKED):
            other = FACTS[(i + 5 * j + 7) % len(FACTS)]
            then = "And the " + other[0].replace(" of Tolmay", "") + "?"
            two = j % 3 == 2 and other is not fact
            out.append(turns(asked.format(fact[0]), answer(fact, False), *([then, answer(other, True)] if two else [])))
    for i, fact in enumerate(KNOWN):
        for j in range(3):
            out.append(turns(ASKED[(i + 3 * j) % len(ASKED)].format(fact[0]), answer(fact, False)))
    for subject, sentence in SENTENCES.items():
        out.append(turns(f"Write one sentence about {subject}.", sentence))
    return out


def main():
    out = sys.argv[1]
    os.makedirs(out, exist_ok=True)
    unseen = [turns(asked.format(fact[0]), answer(fact, False)) for fact in FACTS for asked in UNSEEN]
    prompts = [UNSEEN[i % 2].format(FACTS[i][0]) for i in (0, 1, 3, 9, 20)] + OTHERS
    for name, lines in (("train.jsonl", [json.dumps(c) for c in conversations()]),
                        ("validation.jsonl", [json.dumps(c) for c in unseen]), ("prompts.txt", prompts)):
        with open(os.path.join(out, name), "w") as f:
            f.write("\n".join(lines) + "\n")
        print(f"{os.path.join(out, name)}: {len(lines)} lines")


main()
