//! Names that the glossary has replaced, as tables of words and what to write instead.
//!
//! Words are lower case and joined by `_`, whatever the case of the name in the code. An ordinary
//! word is listed only for the kinds of names in which it says nothing: `place` is a good verb and
//! a bad type.

/// Words and their replacement.
pub(super) type Words = &'static [(&'static [&'static str], &'static str)];

/// Banned in names of every kind, also as a part of one.
pub(super) const ANYWHERE: Words = &[
    (&["tell", "tells", "told", "untold", "say", "says", "said", "unsaid"], "send, report, notify, announce or on_x"),
    (&["hear", "hears", "heard", "unheard"], "receive; last_heard for times"),
    (&["ask", "asks", "asked", "asking", "asker"], "request, query or pending_requests"),
    (&["give_back", "give_up", "gives_up", "given_up", "give_again", "giver", "giving"], "assign, free, release"),
    (&["let_go", "lets_go"], "release, emit or deactivate"),
    (&["go_on", "goes_on"], "continue, advance or resume"),
    (&["look_at", "looks_at", "look_again", "looks_again"], "check, poll, scan or read"),
    (&["is_of", "are_of"], "matches or belongs_to"),
    (&["who", "whose", "whom", "whoever", "what", "whatever"], "the noun of the thing"),
    (&["nobody", "somebody", "anybody", "elsewhere", "stranger"], "the name of the actor or the place"),
    (&["bury", "buried", "dismiss", "dismissed"], "declare_dead or evict"),
    (&["crew", "staff", "recruit", "recruiter", "recruited", "enlist"], "supervisor, pool or provisioner"),
    (&["clerk", "desk", "door", "seat", "seated", "doom"], "handler, listener, queue, slot or assignment"),
    (&["keeper", "parcel", "bulletin", "census", "leftovers"], "store, message, published value, audit or reconcile"),
    (&["shadow", "shadows"], "replica entry, replica store"),
    (&["carried", "carriage"], "snapshot or piggyback"),
    (&["cut_off", "asleep", "stillborn", "befall", "way_to"], "isolated, quiesced, unused, inject or route"),
];

/// Banned as the whole name of a type or module.
pub(super) const TYPES: Words = &[
    (&["kept", "held", "lasting", "keeping", "owed"], "stored or deferred with its noun"),
    (&["given", "taken", "wanted", "brought", "made", "chosen", "parted", "handed"], "the noun of the thing"),
    (&["seen", "foreseen", "looked", "look", "looks", "known"], "status, view, prefetched or checked with its noun"),
    (&["place", "places", "room", "workplace", "standing"], "location, key, slot or backend"),
    (&["way", "ways", "manner", "means", "toward"], "path, connection, mode or handle"),
    (
        &["here", "alone", "away", "around", "behind", "beside", "between", "under", "at", "by", "on", "to", "with"],
        "a noun",
    ),
    (&["before", "again", "often", "until", "moment", "punctual", "happens", "happening"], "a noun"),
    (&["begun", "doing", "came", "gone", "left", "passing", "flying", "travels", "undone"], "a noun"),
    (&["both", "each", "further", "others", "own", "whole", "has", "me", "why", "rare", "unusual"], "a noun"),
    (&["fate", "forgotten", "heart", "pulse", "relief", "tie", "hand", "hands", "victim"], "the term of the glossary"),
    (&["primary"], "owner"),
];

/// Banned as the whole name of an enum variant or a field.
pub(super) const MEMBERS: Words = &[
    (&["kept", "held", "given", "taken", "wanted", "seen", "looked"], "the noun of the thing"),
    (&["place", "way", "ways"], "location, key, slot, path or mode"),
    (&["again", "patience", "until"], "retry_at, timeout or deadline"),
    (&["here", "gone", "left", "yours", "others", "unheard"], "state the condition"),
];

/// Banned as the whole name of a function.
pub(super) const FUNCTIONS: Words = &[
    (&["of"], "new, from_x or by_x"),
    (&["give", "gives", "given", "go", "goes", "come", "comes", "bring"], "assign, send, run, advance or on_x"),
    (&["look", "looks"], "check, poll, scan or read"),
    (&["lead", "leads", "turn", "turns"], "route, point_to; poll, run_once or tick"),
    (&["leave", "leaves", "left", "lose", "loses", "lost"], "remaining, departed, on_disconnect or on_x_lost"),
    (&["kept", "held", "taken", "wanted", "want", "lacks", "seen"], "the noun of the thing"),
    (&["happen", "happens", "breaks", "dies", "fails", "enters", "waits", "works"], "on_x, enqueue or is_x"),
    (
        &["again", "alone", "back", "far", "later", "others", "out", "own", "yours", "gone", "silent"],
        "a verb and its object",
    ),
    (&["lives", "living", "meet", "obey", "doubt", "disown", "complain", "foresee", "remind"], "a verb of the field"),
];

/// Prefixes that are banned in names of functions.
pub(super) const FUNCTION_PREFIXES: Words = &[(&["of_"], "from_x for constructors, by_x for lookups")];

/// Names that are allowed although a table has a part of them.
pub(super) const ALLOWED: &[&str] = &["last_heard"];
