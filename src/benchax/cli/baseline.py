"""`benchax baseline`: names for runs that later ones are compared with."""

from __future__ import annotations

from typing import Annotated

import typer

app = typer.Typer(help="Names for runs: what `benchax compare NAME` compares with.", no_args_is_help=True)

Store = Annotated[str | None, typer.Option(help="Folder of the database (default .benchmarks).")]


@app.command("set")
def set_name(
    name: Annotated[str, typer.Argument(help="Such as v1.2.")],
    reference: Annotated[str, typer.Argument(metavar="[RUN]", help="A run, a commit, a baseline, or last.")] = "last",
    store: Store = None,
) -> None:
    """Give a run a name. A name that exists means the new run from then on."""
    from benchax.cli.console import note
    from benchax.cli.listing import open_listed_store
    from benchax.store.baselines import rows_of, set_baseline

    database = open_listed_store(store)
    rows = rows_of(database, reference)
    newest = rows[-1].run_id
    set_baseline(database, name, newest)
    kept = [m for m in rows if m.run_id == newest]
    without = [m.case.label for m in kept if m.program is None]
    note(f"{name} is run {newest[:12]}: {len(kept)} case{'s' * (len(kept) != 1)}")
    if without:
        note(f"without a program, and so not comparable: {', '.join(without)}")


@app.command("list")
def list_names(store: Store = None) -> None:
    """List the names and their runs."""
    from benchax.cli.console import line, note
    from benchax.cli.listing import open_listed_store
    from benchax.store.baselines import list_baselines

    found = list_baselines(open_listed_store(store))
    for baseline in found:
        line(f"{baseline.name}  run {baseline.run_id[:12]}  set {baseline.set_at[:16].replace('T', ' ')} UTC")
    if not found:
        note("no baselines; benchax baseline set NAME gives the last run a name")


@app.command("remove")
def remove_name(name: str, store: Store = None) -> None:
    """Take a name back. The run stays."""
    from benchax.cli.listing import open_listed_store
    from benchax.store.baselines import remove

    remove(open_listed_store(store), name)
