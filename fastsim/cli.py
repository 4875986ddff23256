"""The command line: commands only. Heavy imports wait until a command needs them."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import App, CycloptsError, Parameter

from fastsim import cli_queueing, cli_selection
from fastsim.cli_shared import Json, Whole, print_json
from fastsim.errors import InputError

app = App(
    name="fastsim",
    help="Simulate LLM request routing: sweeps with confidence intervals.",
    version=lambda: _version(),
    default_parameter=Parameter(negative=()),
    suppress_keyboard_interrupt=False,  # `main` says what was kept
)

FAILED, WRONG_INPUT, INTERRUPTED = 1, 2, 130

Settings = Annotated[
    tuple[str, ...],
    Parameter(name="--set", help="Set a parameter: key=value, the value as in TOML. May be repeated."),
]

Imports = Annotated[
    tuple[str, ...],
    Parameter(name="--import", help="Own policies: a Python file, or a module. May be repeated."),
]


@app.command
def run(
    sweep: Path,
    /,
    *,
    jobs: Whole | None = None,
    out: Path | None = None,
    backend: Literal["threads", "processes", "dask"] = "threads",
    settings: Settings = (),
    imports: Imports = (),
    trace: Path | None = None,
) -> int:
    """Run a sweep, or what is missing of it; then print its tables and draw its figures.

    Parameters
    ----------
    sweep
        TOML file of the sweep.
    jobs
        Workers; by default what the sweep says, else the number of cores.
    out
        Results folder, by default results/NAME. Points it holds already are not run again.
    backend
        How points run side by side.
    settings
        Set a parameter.
    imports
        Own policies.
    trace
        Trace the sweep replays, the same as --set workload.trace=PATH.
    """
    from fastsim import sweep as sweeps
    from fastsim.report import figures

    _first_interrupt_stops_second_kills()
    from_trace = [f"workload.trace={json.dumps(str(trace))}"] if trace else []
    plan = sweeps.load(sweep, [*settings, *from_trace], imports)
    figures.check(plan)
    folder = out or Path("results") / plan.name
    report = sweeps.run(plan, folder, jobs=jobs, backend=backend, progress=True, note=_note)
    if report.simulated or report.found or report.shared:
        results = _show(folder)
        for path in figures.write(results, folder):
            print(f"figure: {path}")
    shared = f"{report.shared} by another run meanwhile, " if report.shared else ""
    simulated = f"{report.simulated} points simulated in {report.seconds:.1f} s"
    print(f"{simulated}, {shared}{report.found} found in {folder}")
    for point, error in list(report.failed.items())[:5]:
        _note(f"failed: {point}: {error}")
    if report.failed:
        _note(
            f"{len(report.failed)} points failed, see {folder / 'failed.txt'}; another run tries them again"
        )
    return FAILED if report.failed else 0


@app.command
def show(
    folder: Path,
    /,
    *,
    by: tuple[str, ...] = (),
    where: Annotated[
        tuple[str, ...],
        Parameter(help="Only cells with that value: axis=value, or axis=[a, b]. May be repeated."),
    ] = (),
    average: tuple[str, ...] = (),
    metric: tuple[str, ...] = (),
    as_json: Json = False,
) -> None:
    """Print the results of a sweep: means and P99s with 95 % intervals, and paired differences.

    Parameters
    ----------
    folder
        Results folder; the sweep may still be running.
    by
        Axis to keep, by default all. May be repeated.
    where
        Only cells with that value.
    average
        Axis that is not kept and may be averaged over, seed by seed. May be repeated.
    metric
        Metric to print instead of those the sweep names. May be repeated.
    as_json
        Print JSON.
    """
    from fastsim.sweep.spec import setting

    wanted: dict[str, Any] = {"by": by, "metrics": metric, "average": average}
    wanted["where"] = dict(map(setting, where))
    if not as_json:
        _show(folder, **wanted)
        return
    from fastsim.report import data
    from fastsim.sweep import summarise

    print_json(data.rows(summarise(_read(folder), **wanted)))


@app.command
def replay(
    trace: Path,
    /,
    *,
    router: tuple[str, ...] = (),
    sort: str = "latency_p99_s",
    replicas: Whole = 4,
    model: str = "mistral-7b",
    gpu: str = "a6000",
    engine: Literal["vllm", "lecture"] = "vllm",
    block_tok: Whole | None = None,
    kv_tok: Whole | None = None,
    view: str = "native",
    rate_scale: float = 1.0,
    format: str | None = None,
    hash_block_tok: Whole | None = None,
    skip_bad: bool = False,
    settings: Settings = (),
    imports: Imports = (),
    as_json: Json = False,
) -> None:
    """Serve a trace behind each router in turn and compare them: one run each, no intervals.

    Parameters
    ----------
    trace
        File in any format of `fastsim workloads`, plain or gzipped.
    router
        Router to compare, or all; by default round_robin, least_loaded, cache_aware_guard, a router of each
        known system that looks at caches, and those imported. May be repeated.
    sort
        Metric to sort by, best first, such as ttft_p99_s, hit_rate or busiest_share.
    replicas
        Replicas of the model.
    model
        Name from `fastsim models`.
    gpu
        Name from `fastsim hardware`.
    engine
        Scheduler of a replica.
    block_tok
        Tokens a KV block, by default 16.
    kv_tok
        KV capacity of a replica in tokens, by default what the GPU leaves beside the weights.
    view
        How fresh what routers see is: native, live, own, periodic(T) or delayed(d), T and d in seconds.
    rate_scale
        Factor on the trace's rate.
    format
        Format of the trace, recognised by default.
    hash_block_tok
        Tokens one hash id of the trace stands for, guessed by default.
    skip_bad
        Drop and count malformed rows instead of refusing the trace.
    settings
        Set a parameter.
    imports
        Own policies.
    as_json
        Print JSON.
    """
    from fastsim.report import text
    from fastsim.sweep.replay import replay as compare

    workload = {"trace": str(trace), "format": format, "block_tok": hash_block_tok}
    cluster = {"replicas": replicas, "model": model, "gpu": gpu, "engine": engine}
    cluster |= {"block_tok": block_tok, "kv_tok": kv_tok}
    base = {
        "view": view,
        "workload": {**_given(workload), "rate_scale": rate_scale, "skip_bad": skip_bad},
        "cluster": _given(cluster),
    }
    found = compare(base, router, settings=settings, imports=imports, sort=sort, note=_note)
    if as_json:
        print_json({"workload": found.workload, "cluster": found.cluster, "routers": found.rows})
    else:
        print(text.replay(found))


@app.command
def explain(
    request: Whole,
    /,
    *,
    trace: Path | None = None,
    workload: str = "long_documents",
    router: str = "cache_aware_guard",
    sample: Whole = 0,
    out: Path | None = None,
    settings: Settings = (),
    imports: Imports = (),
    as_json: Json = False,
) -> None:
    """Say why a request was sent where it was: what its router knew, and what was best in hindsight.

    Parameters
    ----------
    request
        Number of the request, from 0 in the order of arrival.
    trace
        Trace to serve, instead of a synthetic workload.
    workload
        Name from `fastsim workloads`.
    router
        Name from `fastsim routers`.
    sample
        Requests, drawn at random, whose regret is to be found, too.
    out
        Parquet file to write: a row a request and replica.
    settings
        Set a parameter, such as router_params.theta=0.3, cluster.replicas=8, workload.rate_rps=2 or view=own.
    imports
        Own policies.
    as_json
        Print JSON.
    """
    from fastsim.report.explain import render
    from fastsim.sweep.explain import explain as look

    source = {"trace": str(trace)} if trace else {"name": workload}
    found = look(
        {"router": router, "workload": source},
        request,
        sample=sample,
        settings=settings,
        imports=imports,
        note=_note,
    )
    if out is not None:
        found.table.write_parquet(out)
    if as_json:
        print_json({name: getattr(found, name) for name in ("request", "router", "replicas", "sample")})
    else:
        print(render(found))


app.command(cli_queueing.queue)
app.command(cli_queueing.balls)
app.command(cli_queueing.lecture)
app.command(cli_selection.select)
app.command(cli_selection.route)


@app.command
def routers(*, as_json: Json = False) -> None:
    """List the routing policies and their parameters."""
    _list("routers", as_json)


@app.command
def orders(*, as_json: Json = False) -> None:
    """List the orders in which a replica takes up waiting requests (cluster.order)."""
    _list("orders", as_json)


@app.command
def workloads(name: str = "", /, *, settings: Settings = (), seed: Whole = 0, as_json: Json = False) -> None:
    """List the synthetic workloads and the trace formats; or measure what the prompts of one have in common.

    Parameters
    ----------
    name
        Workload to make, or trace to read, and measure: lengths, shared prefixes and key portions, beside
        Preble's Table 1 for its five.
    settings
        Set a parameter.
    seed
        Seed of the workload.
    as_json
        Print JSON.
    """
    if not name:
        _list("workloads", as_json)
        return
    from fastsim.report import workloads as measured
    from fastsim.sweep.spec import setting

    workload = measured.find(name, dict(map(setting, settings)), seed)
    if as_json:
        print_json(measured.statistics(workload))
    else:
        print(measured.text(workload))


@app.command
def model_routers(*, as_json: Json = False) -> None:
    """List the routers from a request to a model and their parameters."""
    _list("model_routers", as_json)


@app.command
def systems(*, as_json: Json = False) -> None:
    """List the compound systems."""
    _list("systems", as_json)


@app.command
def searchers(*, as_json: Json = False) -> None:
    """List the searchers for allocations and their parameters."""
    _list("searchers", as_json)


@app.command
def hardware(*, as_json: Json = False) -> None:
    """List the GPUs."""
    _list("hardware", as_json)


@app.command
def models(*, as_json: Json = False) -> None:
    """List the language models."""
    _list("models", as_json)


def main() -> None:
    """Entry point: run a command; an error of the user's is one sentence, and exit status 2."""
    try:
        code = app(sys.argv[1:], exit_on_error=False, print_error=False, result_action="return_value")
    except (InputError, CycloptsError) as error:
        _note(" ".join(str(error).split()) if isinstance(error, CycloptsError) else str(error))
        code = WRONG_INPUT
    except KeyboardInterrupt as interrupt:
        _note(str(interrupt) or "interrupted")
        code = INTERRUPTED
    except BrokenPipeError:  # the reader of our output had enough
        sys.stderr.close()
        code = FAILED
    except OSError as error:  # a full disk, a folder without permission
        _note(str(error))
        code = FAILED
    _hear_interrupts_to_the_end()
    sys.exit(code if isinstance(code, int) else 0)


def _show(folder: Path, **wanted: Any) -> Any:
    from fastsim.report import text
    from fastsim.sweep import summarise
    from fastsim.sweep.experiments import experiment

    results = _read(folder)
    what = experiment(results.sweep.experiment)
    print(text.heading(results.sweep))
    for table in summarise(results, **wanted):
        print(f"\n{text.summary(table, what)}\n")
    return results


def _read(folder: Path) -> Any:
    from fastsim.sweep import read

    results = read(folder)
    for path, why in results.bad.items():
        _note(f"part {path.name} cannot be used: {why}; run the sweep again to mend it")
    for sentence in results.notes:
        _note(sentence)
    return results


def _list(what: str, as_json: bool) -> None:
    from fastsim.report import listings

    listing = getattr(listings, what)()
    if as_json:
        print_json(listing)
    else:
        print(listings.render(listing))


def _given(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _note(text: str) -> None:
    print(f"fastsim: {text}" if "\n" not in text else text, file=sys.stderr, flush=True)


def _version() -> str:
    import fastsim

    return fastsim.__version__


def _first_interrupt_stops_second_kills() -> None:
    def stop(number: int, frame: Any) -> None:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        raise KeyboardInterrupt

    signal.signal(signal.SIGINT, stop)


def _hear_interrupts_to_the_end() -> None:
    """While Python ends, an interrupt would be a traceback and the exit status 0."""

    def leave(number: int, frame: Any) -> None:
        while frame is not None:
            if frame.f_code.co_name == "<module>" and frame.f_globals.get("__name__") == "__main__":
                raise KeyboardInterrupt  # the program that called us goes on
            frame = frame.f_back
        os.write(2, b"fastsim: interrupted\n")
        os._exit(INTERRUPTED)

    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, leave)


if __name__ == "__main__":
    main()
