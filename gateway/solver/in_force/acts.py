"""What people do with constraint modules: load, unload, approve, roll back, promote. Recorded first."""

from __future__ import annotations

import asyncio
import hashlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Generic, TypeVar, assert_never

import structlog

from gateway.core.errors import GatewayError
from gateway.solver.errors import ModuleRefusedError, NothingToApproveError
from gateway.solver.in_force.activation import store_durably
from gateway.solver.in_force.changes import Approved, FirstOfTwo, Refuse, Reworded, SamePerson, judge_approval
from gateway.solver.in_force.module_status import Held, Waiting, listed, told
from gateway.solver.in_force.registry import Registry
from gateway.solver.in_force.staging import COMPARES
from gateway.solver.in_force.watcher import is_module_name

log = structlog.get_logger().bind(component="registry")

R = TypeVar("R")  # a rule set


class ActRefusedError(GatewayError):
    """Somebody asked for what cannot be done; the sentence says why and what to do."""


@dataclass(frozen=True, slots=True)
class Acts(Generic[R]):
    """People's verbs over one registry. Each raises `GatewayError` with a sentence, or it is done."""

    registry: Registry[R]

    async def load(
        self, name: str, data: bytes, user: str, *, priority: int | None = None, shadow: bool = False
    ) -> None:
        """Put a module file that can be used into the watched folder and take it at once.

        `priority` overrides the file's, beside its bytes. As a weakening it then waits for approval.
        """
        if Path(name).name != name or not is_module_name(name):
            problem = (
                f"`{name}` is not a name for a module file; it ends in .json or .o3c and does not begin "
                "with a point"
            )
            raise ActRefusedError(problem)
        registry = self.registry
        async with registry.lock:
            held = await self._offer(name, data, user, priority)
            self._refuse_misplaced(held, shadow=shadow)
            facts = {"module": held.module.id, "file": name, "sha256": held.content}
            facts |= {"priority": str(priority)} if priority is not None else {}
            await registry.record("module_load", user, facts | ({"shadow": "true"} if shadow else {}))
            await asyncio.to_thread(registry.activation.note_author, name, held.content, user)
            await asyncio.to_thread(store_durably, registry.folder / name, data)
            if shadow:
                sets = await registry.staging.tried(registry.sets, held)
            elif _priority_only(registry.sets.active.get(held.module.id), held):
                sets = registry.sets.with_active(held)
            else:
                sets = await registry.staging.offered(registry.sets, held, frozenset({user}))
            await registry.take(sets, name)
            await registry.approve_signed()
            registry.changed()
            self._raise_refusal(name)

    async def unload(self, module: str, user: str) -> None:
        """Take a module's file out of the watched folder. One in force then waits for approval."""
        registry = self.registry
        async with registry.lock:
            sets = registry.sets
            held = sets.active.get(module) or sets.shadow.get(module)
            if held is None:
                raise ActRefusedError(f"no module `{module}` is in force{listed(sets.active)}")
            if module in registry.required and module in sets.active:
                problem = (
                    f"a decision point requires module `{module}`; take it out of `required_modules` first"
                )
                raise ActRefusedError(problem)
            await registry.record("module_unload", user, {"module": module, "file": held.file})
            try:
                await asyncio.to_thread((registry.folder / held.file).unlink, missing_ok=True)
            except OSError as exc:
                raise ActRefusedError(f"`{held.file}` cannot be taken out: {exc.strerror}") from exc
            sets = await registry.staging.without_file(sets, held.file, frozenset({user}))
            await registry.take(sets, held.file)
            registry.changed()

    async def approve(self, module: str, user: str, change: str = "") -> None:
        """Put a waiting weakening in force (S24), at once or when its safe set is proved (S1).

        `change` is the mark of what was looked at; another one that waits by now is not approved unseen.
        While a point is armed, `user` must not be the one who made the change; where nobody knows who did,
        two must approve. `NothingToApproveError` when nothing waits.
        """
        registry = self.registry
        async with registry.lock:
            waiting = registry.book.waiting.get(module)
            if waiting is None:
                raise NothingToApproveError(module)
            if change not in {"", waiting.mark}:
                problem = (
                    f"module `{module}`: what waits is `{waiting.mark}` by now, not `{change}`: "
                    f"{waiting.because}; look at it again"
                )
                raise ActRefusedError(problem)
            if waiting.proving:
                raise ActRefusedError(f"module `{module}`: its change is approved and is being proved")
            armed = registry.invariance.armed()
            approval = judge_approval(waiting.by, user, registry.weakening, armed=armed)
            facts = {"module": module, "change": waiting.because, "made_by": ", ".join(sorted(waiting.by))}
            facts["sha256"] = waiting.offer.content if waiting.offer is not None else ""
            match approval:
                case SamePerson(because):
                    raise ActRefusedError(f"module `{module}`: {because}")
                case FirstOfTwo():
                    await registry.record("module_approved_first", user, facts)
                    because = (
                        f"{waiting.because}; who made the change is not known: `{user}` approved it first, "
                        "another account with the role engineer must approve it too"
                    )
                    registry.book.waiting[module] = replace(waiting, by=frozenset({user}), because=because)
                    registry.changed()
                    return
                case Approved():
                    await registry.record("module_approved", user, facts)
                case _:
                    assert_never(approval)
            log.info("weakening_approved", module=module, user=user, change=waiting.because)
            done = await registry.carry_out(module, waiting)
            registry.changed()
            if not done:
                self._raise_refusal(waiting.file)

    async def roll_back(self, module: str, user: str) -> str:
        """Go back to the accepted revision before the one in force; the module's id.

        Empty `module`: the one that changed last. Where that may weaken the rules it waits for approval.
        """
        registry = self.registry
        async with registry.lock:
            name = module or self._changed_last()
            old, kept = registry.sets.active.get(name), registry.activation.before(name)
            if old is None:
                raise ActRefusedError(f"no module `{name}` is in force{listed(registry.sets.active)}")
            if kept is None:
                problem = f"no revision of module `{name}` was accepted before revision {old.module.revision}"
                raise ActRefusedError(problem)
            try:
                back = replace(
                    await registry.restoring.held(kept), file=old.file, since_ns=registry.clock.utc_ns()
                )
            except ModuleRefusedError as exc:
                raise ActRefusedError(
                    f"revision {kept.revision} fits no more: {'; '.join(told(exc))}"
                ) from exc
            said = f"revision {old.module.revision} would be rolled back to revision {kept.revision}"
            weak = await asyncio.to_thread(registry.staging.weakens, old.module, back.module)
            waiting = Waiting(
                back,
                f"{said}: {weak}, which may weaken the rules" if weak else said,
                frozenset({user}),
                takes_back=old.module.digest,
                file=old.file,
            )
            facts = {"module": name, "from": str(old.module.revision), "to": str(kept.revision)}
            await registry.record("module_rollback", user, facts)
            registry.book.tried(name)
            await self._wait_or_do(name, waiting, weak)
            return name

    async def promote(self, module: str, user: str) -> None:
        """Put a shadow module in force: a person's act (S27). As a weakening it waits for approval."""
        registry = self.registry
        async with registry.lock:
            held = registry.sets.shadow.get(module)
            if held is None:
                shadow = ", ".join(sorted(registry.sets.shadow)) or "none"
                raise ActRefusedError(f"no module `{module}` is in shadow; in shadow: {shadow}")
            await registry.record("module_promoted", user, {"module": module, "sha256": held.content})
            fresh = replace(held, since_ns=registry.clock.utc_ns())
            before = registry.sets.active.get(module)
            if before is not None and before.file != held.file:
                fresh = await self._moved(fresh, before.file, user)
            sets = await registry.staging.offered(registry.sets, fresh, frozenset({user}))
            await registry.take(sets, fresh.file)
            await registry.approve_signed()
            registry.changed()
            self._raise_refusal(fresh.file)

    async def _moved(self, held: Held, file: str, user: str) -> Held:
        """A module's bytes under another name of the watched folder."""
        registry = self.registry
        await asyncio.to_thread(registry.activation.note_author, file, held.content, user)
        await asyncio.to_thread(store_durably, registry.folder / file, held.data)
        await asyncio.to_thread((registry.folder / held.file).unlink, missing_ok=True)
        return replace(held, file=file)

    async def _offer(self, name: str, data: bytes, user: str, priority: int | None) -> Held:
        registry = self.registry
        try:
            module = await registry.staging.module(data, name)
        except ModuleRefusedError as exc:
            raise ActRefusedError("; ".join(told(exc))) from exc
        if priority is not None:
            module = replace(module, priority=priority)
        content = hashlib.sha256(data).hexdigest()
        return Held(
            module, data, name, content, registry.clock.utc_ns(), user if priority is not None else ""
        )

    def _refuse_misplaced(self, held: Held, *, shadow: bool) -> None:
        """What would be refused must not take the place of a good file in the folder."""
        registry, name = self.registry, held.module.id
        owner = registry.sets.owner(held.file)
        if owner is not None and owner != name:
            raise ActRefusedError(
                f"`{held.file}` holds module `{owner}`, which is in force: use another name"
            )
        if shadow:
            if owner is not None:
                problem = f"`{held.file}` is the file of the revision in force: give the trial another name"
                raise ActRefusedError(problem)
            return
        verdict = registry.staging.judge(registry.sets, held)
        if isinstance(verdict, Refuse):
            raise ActRefusedError(f"{verdict.because}; {verdict.todo}")

    async def _wait_or_do(self, name: str, waiting: Waiting, weak: str) -> None:
        registry = self.registry
        if isinstance(weak, Reworded) and registry.staging.compares and waiting.offer is not None:
            because = waiting.because.partition(", which may")[0]
            compared = registry.staging.compared(waiting.offer, because, waiting.by)
            await registry.book.wait(name, replace(compared, takes_back=waiting.takes_back), COMPARES)
            registry.changed()
            return
        if weak:
            await registry.book.wait(name, waiting, f"an engineer approves it: o3ctl runtime approve {name}")
            registry.changed()
            return
        done = await registry.carry_out(name, waiting)
        registry.changed()
        if not done:
            self._raise_refusal(waiting.file)

    def _changed_last(self) -> str:
        """The module in force that changed last and has a revision to go back to."""
        registry = self.registry
        known = [h for n, h in registry.sets.active.items() if registry.activation.before(n) is not None]
        if not known:
            raise ActRefusedError("no module in force has an accepted revision to go back to")
        return max(known, key=lambda h: h.since_ns).module.id

    def _raise_refusal(self, file: str) -> None:
        refusal = self.registry.book.refused.get(file)
        if refusal is not None:
            raise ActRefusedError("; ".join(refusal.because))


def _priority_only(old: Held | None, new: Held) -> bool:
    """Whether only a priority is given to the bytes in force: it orders repairs and reports."""
    return old is not None and bool(new.priority_by) and old.module.digest == new.module.digest
