"""What travels over the internal port: `Feed` (truth, outwards) and `Ask` (questions, inwards).

All times are UTC nanoseconds; numbers are decimal text where they must stay exact.
"""

from __future__ import annotations

from typing import Any

import msgspec

Value = bool | int | float | str | None


class TagState(msgspec.Struct, frozen=True, tag="tag"):
    """One tag's newest sample. `definition` fields are sent once, in the snapshot, as `TagInfo`."""

    id: str
    value: Value
    status: int
    source_ts_ns: int | None
    server_ts_ns: int


class TagInfo(msgspec.Struct, frozen=True, tag="tag_info"):
    """What configuration says of a tag. `kind`: real, integer, boolean, text."""

    id: str
    kind: str
    unit: str
    description: str
    low: float | None
    high: float | None
    writable: bool


class ResidualState(msgspec.Struct, frozen=True):
    """One tag's newest measurement against what was predicted `window` steps before it (S16).

    `residual` (reading minus middle of the band) and `outside` (by how far the band is missed) are in the
    tag's unit; `used_share` is 1 at the end of the band, more outside. Of the newest five, `missed` were
    outside.
    """

    tag: str
    window: int
    residual: float
    outside: float
    used_share: float
    missed: int


class PointState(msgspec.Struct, frozen=True, tag="point"):
    """One decision point as nodes, topics and the CLI show it."""

    id: str
    mode: str
    inputs: list[str]
    outputs: list[str]
    model: str
    alarm: str  # the one standing alarm's text; empty when none
    last_decision: str
    in_control: bool
    blocked: str  # why it cannot write now; empty when it can
    residuals: list[ResidualState] = []  # by tag and window
    guided: bool = False  # the model decodes along what the rules in force can still permit
    drift: dict[str, float] = {}  # by output: share of the model's probability that was masked out, averaged
    repair: str = "segment"  # where a repair is looked for: on the way to the values in force, or `nearest`


class ModuleState(msgspec.Struct, frozen=True, tag="module"):
    """One constraint module file: attempt, success and what is in force, apart."""

    id: str
    file: str
    state: str  # active, shadow (judged, no effect), pending (waits), refused, unloaded, gone (drop it)
    revision: int
    digest: str
    priority: int
    last_attempt_ns: int
    last_success_ns: int
    refused_because: list[str]
    constraints: list[str]
    priority_by: str = ""  # who gave another priority than the file's
    changed_by: list[str] = []  # whose change waits
    change: str = ""  # the mark of what waits: see `o3ctl runtime approve --change`
    analysis: list[str] = []  # of what waits, else of what is in force: a summary, then what to look at


class ModelState(msgspec.Struct, frozen=True, tag="model"):
    """One model of the configuration and the bundle that serves it."""

    id: str
    bundle: str  # its folder's name
    revision: str  # its own id and revision
    digest: str
    state: str  # ready, swapping (another one gets ready), replaced (its worker was lost)
    previous: str  # what `rollback` goes back to; empty: nothing
    by: str  # who put it in service; empty: the configuration
    at_ns: int
    points: list[str]
    problem: str = ""  # why the bundle that should serve does not
    swaps: int = 0  # since start
    refused: int = 0  # bundles that did not take over, since start
    last_refusal: str = ""  # why the newest of them did not; empty once another one has
    costs_ms: dict[str, float] = {}  # what work costs here: decision, slow, prefill, chunk, step_of_<rows>
    provider: str = ""  # where its newest worker runs
    asked_provider: str = ""  # auto, cpu, cuda:N
    fell_back: str = ""  # why it does not run where it should
    memory: dict[str, float] = {}  # what its worker counts: sessions, pages, pages_free, ... since it started
    counted_ns: int = 0  # when; 0: not yet


class DecisionView(msgspec.Struct, frozen=True, tag="decision"):
    """One decision, in engineering units, for people and clients. Never coalesced."""

    id: str
    point: str
    mode: str
    requested_by: str
    at_ns: int
    outcome: str  # permitted, repaired, refused, undetermined, rejected
    reason: str
    proposal: dict[str, str]  # tag -> decimal text
    setpoints: dict[str, str]  # what the verdict (or the checked fallback) lets out
    written_by: str
    violated: list[str]  # `module/constraint`
    counterexample: str  # a sentence; empty when none
    counterexample_json: str
    margins: list[
        tuple[str, str, str]
    ]  # `module/constraint`, decimal text, unit; nearest first, held ranges last
    generation: int
    rule_set_digest: str
    model_digest: str
    certificate_digest: str
    confidence: float | None
    write_outcome: str  # empty until known
    timings_ms: dict[str, float]
    inputs: dict[str, str]
    reported: list[str] = []  # `module/constraint: message`, violated and informational or only watched
    decoding: str = ""  # whether the model was guided, in words; empty where nobody asked
    masked_out: dict[str, float] = {}  # by output: share of the model's probability that was masked out
    shortlist: str = ""  # which of the model's proposals it is about, in words; empty where it had one
    shadow: list[str] = []  # what modules in shadow would have said, one sentence each; no effect
    overridden: str = (
        ""  # `with ... overridden until ... by A, confirmed by B`; empty where nothing was (S25)
    )


class Alarm(msgspec.Struct, frozen=True, tag="alarm"):
    """One standing alarm per source (S28); inactive and acknowledged ends it."""

    source: str  # `point:<id>`, `link:<id>`, `module:<id>`, `provider:<model>`, `audit`
    active: bool
    acknowledged: bool
    severity: int  # 1-1000, OPC 10000-9
    cause: str
    consequence: str
    action: str
    since_ns: int


class GatewayState(msgspec.Struct, frozen=True, tag="gateway"):
    """The daemon as a whole."""

    id: str
    version: str
    started_ns: int
    healthy: bool
    parts: dict[str, str]  # part -> `ok` or what is wrong
    generation: int
    rule_set_digest: str
    counters: dict[str, int]
    writes_stopped: bool
    config_digest: str
    inference: dict[str, str]  # ep_requested, ep_actual, bundle, digest


class OverrideState(msgspec.Struct, frozen=True, tag="override"):
    """A standard constraint that two persons set aside for a while, or that one asked to (S25)."""

    id: str  # MODULE/CONSTRAINT
    state: str  # requested, active, ended (told once)
    reason: str
    requested_by: str
    confirmed_by: str  # empty while it is only asked for
    since_ns: int
    until_ns: int


class ConstraintCoverage(msgspec.Struct, frozen=True, tag="coverage"):
    """What one constraint in force has done since `since_ns`. Times are UTC ns, 0: never.

    `bound_ns`: when it last fired or left no margin. `margins`: bins of least margin, first above it, count.
    """

    id: str  # MODULE/CONSTRAINT
    kind: str
    revision: int
    since_ns: int
    judged: int
    fired: int
    unknown: int
    judged_ns: int
    fired_ns: int
    bound_ns: int
    least_margin: float | None
    least_ns: int
    margins: list[tuple[float | None, float | None, int]] = []
    margin_unit: str = ""  # of the least margin; empty where nobody can tell
    gone: bool = False  # it is in force no more


FeedItem = (
    TagInfo
    | TagState
    | PointState
    | ModuleState
    | ModelState
    | OverrideState
    | ConstraintCoverage
    | DecisionView
    | Alarm
    | GatewayState
)


class FeedBatch(msgspec.Struct, frozen=True, tag="feed"):
    """Items in order. `sequence` rises by one a batch; `snapshot` marks a full resync: drop what you held."""

    sequence: int
    snapshot: bool
    items: list[FeedItem]


class Subscribe(msgspec.Struct, frozen=True, tag="subscribe"):
    """First frame of a connection that wants the Feed; it gets FeedBatches, beginning with a snapshot."""

    client: str


DECISIONS_PAGE = 100  # of the answer to `decisions`: more at once would hold the loop that decides


class Ask(msgspec.Struct, frozen=True, tag="ask"):
    """A question. `user` is whom the front end authenticated; empty: the peer's own Unix user."""

    id: int
    verb: str
    args: dict[str, Any]
    user: str = ""
    deadline_ms: float = 2000.0


class Answer(msgspec.Struct, frozen=True, tag="answer"):
    """The answer to `Ask` of the same id; `error` is a sentence to act on, empty when all is well."""

    id: int
    ok: bool
    result: Any = None
    error: str = ""


ToServer = Subscribe | Ask
ToClient = FeedBatch | Answer
