"""The compiled heart of placement: one pass over a ranking gives who keeps, who gets and who loses a gang.

``plan`` goes through waiting and running jobs in one order of rank, and keeps three books of devices (by pool: equal
devices of one node), CPUs and memory (by node):

- ``room``: all that better-ranked jobs have left;
- ``free``: of that, what no running job further down holds;
- ``spare``: of that, what no running job further down holds that would keep it if devices were only counted.

A waiting job gets its gang from ``free``, else from ``spare``, else from ``room``; it can so take devices only from
jobs ranked below it, and from the lowest where there is a choice. A running job keeps its gang if there is still room
for it, else it is evicted: its devices are really used by better ones, and what is left of them is free for those
after it. Since ``room`` only shrinks on the way, a demand that did not fit once is not tried again.

With this, decisions at one instant come to an end: of the jobs that gain or lose a gang, the best-ranked gains.
Device numbers are given out last.

This is one file, long as it is, because Numba's cache looks at the file of the function that is called: compiled code
that calls into another file of kernels would not be made anew when that one changes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from haibun.core.precedence import ahead as rank_of
from haibun.core.precedence import precedes

NODE, SITE = 0, 1  # indices into demand.LOCALITIES


@njit(cache=True)
def _capacity(books: Any, pool: int, p_node: Any, cpu: int, memory: int) -> int:
    """Devices of a pool that a gang could use, by its devices and its node's CPUs and memory."""
    dev, cpus, mem = books
    room = dev[pool]
    node = p_node[pool]
    if cpu > 0:
        room = min(room, cpus[node] // cpu)
    if memory > 0:
        room = min(room, mem[node] // memory)
    return int(max(0, room))


@njit(cache=True)
def _best_single(room: Any, first: Any, n: int, free: Any) -> int:
    """The pool that holds all ``n`` devices with the fewest taken from others, then the least left over; -1: none."""
    best, best_taken, best_left = -1, 0, 0
    for i in range(len(room)):
        if room[i] < n:
            continue
        taken = n - min(n, max(0, free[first[i]]))
        if best < 0 or taken < best_taken or (taken == best_taken and room[i] < best_left):
            best, best_taken, best_left = i, taken, room[i]
    return best


@njit(cache=True)
def _fewest_nodes(room: Any, allowed: Any, n: int, take: Any) -> int:
    """Greedy cover of ``n`` devices by the largest pools, the last one best-fit; fills ``take``, returns pools used.

    Returns 0 where the allowed pools together have too few. Largest-first uses the fewest pools possible.
    """
    take[:] = 0
    left, used = n, 0
    while left > 0:
        best = -1
        for i in range(len(room)):
            if not allowed[i] or take[i] or room[i] == 0:
                continue
            if best < 0:
                best = i
            elif room[best] >= left:
                if left <= room[i] < room[best]:
                    best = i
            elif room[i] > room[best]:
                best = i
        if best < 0:
            return 0
        take[best] = min(left, room[best])
        left -= take[best]
        used += 1
    return used


@njit(cache=True)
def _even(room: Any, allowed: Any, nodes: int, each: int, take: Any) -> bool:
    """Exactly ``nodes`` pools with ``each`` devices, those with the least left over; fills ``take``."""
    take[:] = 0
    for _ in range(nodes):
        best = -1
        for i in range(len(room)):
            if allowed[i] and not take[i] and room[i] >= each and (best < 0 or room[i] < room[best]):
                best = i
        if best < 0:
            return False
        take[best] = each
    return True


@njit(cache=True)
def _fit(books: Any, free: Any, pools: Any, n_site: Any, want: Any, avoid: int, take: Any) -> bool:
    """Where a gang could go, by the books given; ``take[pool]`` is filled with devices from each pool."""
    p_node, p_type, p_open, n_pools = pools
    n, device_type, locality, nodes, cpu, memory = want
    index = np.empty(n_pools, np.int64)
    room = np.empty(n_pools, np.int64)
    found, total = 0, 0
    for pool in range(n_pools):
        if p_open[pool] and p_type[pool] == device_type and p_node[pool] != avoid:
            k = _capacity(books, pool, p_node, cpu, memory)
            if k > 0:
                index[found], room[found] = pool, k
                found += 1
                total += k
    take[:] = 0
    if total < n:
        return False
    index, room = index[:found], room[:found]
    if nodes <= 1:
        single = _best_single(room, index, n, free)
        if single >= 0:
            take[index[single]] = n
            return True
        if locality == NODE or nodes == 1:
            return False
    part = np.zeros(found, np.int64)
    if not _over_sites(room, index, p_node, n_site, n, locality, nodes, part):
        return False
    for i in range(found):
        take[index[i]] = part[i]
    return True


@njit(cache=True)
def _over_sites(
    room: Any, index: Any, p_node: Any, n_site: Any, n: int, locality: int, nodes: int, take: Any
) -> bool:
    """The site (or, where the gang may cross sites, all of them) that holds it on the fewest nodes."""
    found = len(room)
    allowed = np.ones(found, np.bool_)
    trial = np.zeros(found, np.int64)
    if locality != SITE:
        if nodes > 1:
            return _even(room, allowed, nodes, n // nodes, take)
        return _fewest_nodes(room, allowed, n, take) > 0
    best_used = 0
    sites = np.unique(n_site[p_node[index]])
    for site in sites:
        for i in range(found):
            allowed[i] = n_site[p_node[index[i]]] == site
        if nodes > 1:
            if _even(room, allowed, nodes, n // nodes, trial):
                take[:] = trial
                return True
            continue
        used = _fewest_nodes(room, allowed, n, trial)
        if used and (best_used == 0 or used < best_used):
            best_used = used
            take[:] = trial
    return best_used > 0


@njit(cache=True)
def _fit_avoiding(books: Any, free: Any, pools: Any, n_site: Any, want: Any, avoid: int, take: Any) -> bool:
    """As ``_fit``, away from the node where the job failed last if that can be."""
    if avoid >= 0 and _fit(books, free, pools, n_site, want, avoid, take):
        return True
    return _fit(books, free, pools, n_site, want, -1, take)


@njit(cache=True)
def _book(books: Any, pool: int, node: int, k: int, cpu: int, memory: int, sign: int) -> None:
    """Add (or with ``sign`` -1 take) ``k`` devices of a pool, with the CPUs and memory that go with them."""
    dev, cpus, mem = books
    dev[pool] += sign * k
    cpus[node] += sign * k * cpu
    mem[node] += sign * k * memory


@njit(cache=True)
def _copy(books: Any) -> Any:
    return books[0].copy(), books[1].copy(), books[2].copy()


@njit(cache=True)
def _holdings(running: Any, mark: Any, devices: Any) -> Any:
    """Which pool each device of each running job is in: those of job ``i`` are ``held[start[i]:start[i + 1]]``, a pool
    once for each device."""
    dev_pool, dev_claim, _, n_devices = devices
    start = np.zeros(len(running) + 1, np.int64)
    for d in range(n_devices):
        if dev_claim[d] >= 0 and mark[dev_claim[d]] > 0:
            start[mark[dev_claim[d]]] += 1
    for i in range(len(running)):
        start[i + 1] += start[i]
    at = start.copy()
    held = np.empty(start[len(running)], np.int64)
    for d in range(n_devices):
        if dev_claim[d] >= 0 and mark[dev_claim[d]] > 0:
            i = mark[dev_claim[d]] - 1
            held[at[i]] = dev_pool[d]
            at[i] += 1
    return start, held


@njit(cache=True)
def _fixed(running: Any, mark: Any, devices: Any, p_open: Any) -> Any:
    """Which running jobs have a device on a node that takes no work: they are left where they are."""
    dev_pool, dev_claim, _, n_devices = devices
    fixed = np.zeros(len(running), np.bool_)
    if not p_open.all():
        for d in range(n_devices):
            if dev_claim[d] >= 0 and mark[dev_claim[d]] > 0 and not p_open[dev_pool[d]]:
                fixed[mark[dev_claim[d]] - 1] = True
    return fixed


@njit(cache=True)
def _count(
    ranking: Any, strict: bool, ahead: int, jobs: Any, demands: Any, options: Any, budget: Any, fixed: Any
) -> Any:
    """Which running jobs keep their gangs if devices are only counted: each job, best first, takes its own out of
    ``budget`` (devices free or held by running jobs from the ``ahead``-th on, by type)."""
    waiting, running, keys = ranking
    j_demand, _, j_type, j_width = jobs
    d_first, d_last, _, _, d_possible = demands
    o_type, o_devices, _, _ = options
    kept = np.zeros(len(running), np.bool_)
    i, j, room = 0, ahead, budget.sum()
    end = len(waiting)
    while j < len(running) and room > 0:
        if i < end and precedes(keys, waiting[i], running[j]):
            demand = j_demand[waiting[i]]
            i += 1
            if not d_possible[demand]:
                continue
            got = 0
            for o in range(d_first[demand], d_last[demand]):
                if budget[o_type[o]] >= o_devices[o]:
                    got = o_devices[o]
                    budget[o_type[o]] -= got
                    room -= got
                    break
            if not got and strict:
                end = i
            continue
        row = running[j]
        if not fixed[j] and budget[j_type[row]] >= j_width[row]:
            budget[j_type[row]] -= j_width[row]
            room -= j_width[row]
            kept[j] = True
        j += 1
    return kept


@njit(cache=True)
def _room(
    books: Any,
    ranking: Any,
    ahead: int,
    jobs: Any,
    demands: Any,
    p_node: Any,
    holdings: Any,
    fixed: Any,
    kept: Any,
) -> Any:
    """``room``: what is free or held by running jobs from the ``ahead``-th on; ``spare``: less what kept ones hold."""
    _, running, _ = ranking
    _, _, d_cpu, d_memory, _ = demands
    start, held = holdings
    room, spare = _copy(books), _copy(books)
    for j in range(ahead, len(running)):
        if fixed[j]:
            continue
        demand = jobs[0][running[j]]
        for h in range(start[j], start[j + 1]):
            pool, node = held[h], p_node[held[h]]
            _book(room, pool, node, 1, d_cpu[demand], d_memory[demand], 1)
            if not kept[j]:
                _book(spare, pool, node, 1, d_cpu[demand], d_memory[demand], 1)
    return room, spare


@njit(cache=True)
def _keeps(j: int, ask: Any, books: Any, p_node: Any, holdings: Any, kept: bool, took: bool) -> bool:
    """Settle whether running job ``j`` keeps its gang: whether better ones, if they ``took`` from any, left it room."""
    cpu, memory = ask
    _, spare, room = books
    start, held = holdings
    short = False
    for h in range(start[j], start[j + 1]):
        _book(room, held[h], p_node[held[h]], 1, cpu, memory, -1)
        if not kept:
            _book(spare, held[h], p_node[held[h]], 1, cpu, memory, -1)
    if not took:
        return True
    for h in range(start[j], start[j + 1]):
        pool, node = held[h], p_node[held[h]]
        if room[0][pool] < 0 or (cpu > 0 and room[1][node] < 0) or (memory > 0 and room[2][node] < 0):
            short = True
    if short:  # what it leaves is free for those after it
        for h in range(start[j], start[j + 1]):
            for book in books:
                _book(book, held[h], p_node[held[h]], 1, cpu, memory, 1)
    return not short


@njit(cache=True)
def _find(
    row: int, taking: bool, jobs: Any, demands: Any, options: Any, books: Any, left: Any, at: Any, take: Any
) -> int:
    """The first option of a job for which there is room, and in ``take`` its devices by pool; -1: none.

    For each option: devices that are free; else those of jobs that will hardly keep theirs; else those of any job
    ranked below.
    """
    j_demand, j_avoid, _, _ = jobs
    d_first, d_last, d_cpu, d_memory, _ = demands
    o_type, o_devices, o_locality, o_nodes = options
    free, spare, room = books
    pools, n_site = at
    demand = j_demand[row]
    for o in range(d_first[demand], d_last[demand]):
        if o_devices[o] > left[o_type[o]]:
            continue
        want = (o_devices[o], o_type[o], o_locality[o], o_nodes[o], d_cpu[demand], d_memory[demand])
        if _fit_avoiding(free, free[0], pools, n_site, want, j_avoid[row], take):
            return int(o)
        if taking and (
            _fit_avoiding(spare, free[0], pools, n_site, want, j_avoid[row], take)
            or _fit_avoiding(room, free[0], pools, n_site, want, j_avoid[row], take)
        ):
            return int(o)
    return -1


@njit(cache=True)
def _seat(
    ranking: Any,
    strict: bool,
    ahead: int,
    jobs: Any,
    demands: Any,
    options: Any,
    books: Any,
    left: Any,
    at: Any,
    holdings: Any,
    fixed: Any,
    kept: Any,
    gangs: Any,
    verdict: Any,
) -> Any:
    """The pass: in order of rank, waiting jobs are given gangs and running ones keep theirs or not.

    ``left``: devices in ``room``, by type. Fills ``gangs`` and ``verdict``; returns (jobs placed, first refused).
    """
    waiting, running, keys = ranking
    evicted, run_rank = verdict
    i, j, placed, blocked, end = 0, ahead, 0, -1, len(waiting)
    taking, took = ahead < len(running), False
    take = np.zeros(at[0][3], np.int64)
    failed = np.zeros(len(demands[0]), np.bool_)  # room only shrinks: what does not fit now never will
    while (i < end and left.sum() > 0) or (took and j < len(running)):
        if j < len(running) and not (i < end and precedes(keys, waiting[i], running[j])):
            row = running[j]
            if not fixed[j]:
                ask = (demands[2][jobs[0][row]], demands[3][jobs[0][row]])
                evicted[j] = not _keeps(j, ask, books, at[0][0], holdings, kept[j], took)
                if evicted[j]:
                    run_rank[j] = j + rank_of(waiting, len(waiting), keys, row)
                else:
                    left[jobs[2][row]] -= jobs[3][row]
            j += 1
            continue
        row = waiting[i]
        i += 1
        demand = jobs[0][row]
        if not demands[4][demand]:
            continue
        option = -1
        if not failed[demand]:
            option = _find(row, j < len(running), jobs, demands, options, books, left, at, take)
            failed[demand] = option < 0
        if option >= 0:
            took |= _write(
                placed, row, i - 1 + j, option, take, demands, demand, books, taking, at[0][0], gangs
            )
            left[options[0][option]] -= options[1][option]
            placed += 1
        elif blocked < 0:
            blocked = row
            end = i if strict else end
    while blocked < 0 and i < end:
        blocked = waiting[i] if demands[4][jobs[0][waiting[i]]] else -1
        i += 1
    return placed, blocked


@njit(cache=True)
def _write(
    n: int,
    row: int,
    rank: int,
    option: int,
    take: Any,
    demands: Any,
    demand: int,
    books: Any,
    taking: bool,
    p_node: Any,
    gangs: Any,
) -> bool:
    """Write down the ``n``-th gang, and take it out of the books; returns whether it takes from others."""
    rows, ranks, chosen, first, part_pool, part_count = gangs
    free, spare, room = books
    rows[n], ranks[n], chosen[n] = row, rank, option
    cpu, memory = demands[2][demand], demands[3][demand]
    part, took = first[n], False
    for pool in range(len(take)):
        k = take[pool]
        if k:
            part_pool[part], part_count[part] = pool, k
            part += 1
            node = p_node[pool]
            _book(free, pool, node, k, cpu, memory, -1)
            took |= free[0][pool] < 0 or (cpu > 0 and free[1][node] < 0) or (memory > 0 and free[2][node] < 0)
            if taking:
                _book(spare, pool, node, k, cpu, memory, -1)
                _book(room, pool, node, k, cpu, memory, -1)
    first[n + 1] = part
    return took


@njit(cache=True)
def plan(
    waiting: Any,
    running: Any,
    keys: Any,
    strict: bool,
    jobs: Any,
    demands: Any,
    options: Any,
    pools: Any,
    p_free: Any,
    nodes: Any,
    devices: Any,
    n_types: int,
    mark: Any,
    out: Any,
) -> Any:
    """See the module. ``mark`` (a 0 for each row) is scratch, given back as it came.

    Returns (jobs placed, jobs evicted, row of the first waiting job refused or -1); ``out`` holds them: rows, ranks,
    options, first index into the list of devices, devices taken from others; evicted rows, ranks, and by whom.
    """
    p_node, p_type, p_open, n_pools = pools
    n_site, n_cpu, n_mem, n_nodes = nodes
    if len(waiting) == 0:
        return 0, 0, -1
    ranking = (waiting, running, keys)
    ahead = rank_of(
        running, len(running), keys, waiting[0]
    )  # these keep what they have; the others may lose it
    for j in range(ahead, len(running)):
        mark[running[j]] = j + 1
    fixed = _fixed(running, mark, devices, p_open[:n_pools])
    free = (p_free[:n_pools] * p_open[:n_pools], n_cpu[:n_nodes].copy(), n_mem[:n_nodes].copy())
    left = np.zeros(n_types, np.int64)
    for pool in range(n_pools):
        left[p_type[pool]] += free[0][pool]
    spare, room = free, free
    kept = np.zeros(len(running), np.bool_)
    holdings = (np.zeros(1, np.int64), np.zeros(0, np.int64))
    if ahead < len(running):
        for j in range(ahead, len(running)):
            if not fixed[j]:
                left[jobs[2][running[j]]] += jobs[3][running[j]]
        kept = _count(ranking, strict, ahead, jobs, demands, options, left.copy(), fixed)
        holdings = _holdings(running, mark, devices)
        room, spare = _room(free, ranking, ahead, jobs, demands, p_node, holdings, fixed, kept)
    most = left.sum() + 1
    gangs = (
        np.empty(most, np.int64),
        np.empty(most, np.int64),
        np.empty(most, np.int64),
        np.zeros(most + 1, np.int64),
        np.empty(most, np.int64),
        np.empty(most, np.int64),
    )
    verdict = (np.zeros(len(running), np.bool_), np.zeros(len(running), np.int64))
    books, at = (free, spare, room), (pools, n_site)
    placed, blocked = _seat(
        ranking,
        strict,
        ahead,
        jobs,
        demands,
        options,
        books,
        left,
        at,
        holdings,
        fixed,
        kept,
        gangs,
        verdict,
    )
    evicted = 0
    if placed:
        evicted = _give_out(placed, gangs, running, verdict, devices, n_pools, mark, out)
    for j in range(ahead, len(running)):
        mark[running[j]] = 0
    return placed, evicted, blocked


@njit(cache=True)
def _give_out(
    placed: int, gangs: Any, running: Any, verdict: Any, devices: Any, n_pools: int, mark: Any, out: Any
) -> int:
    """Device numbers for what was placed, and whose gang each evicted job made room for; returns jobs evicted."""
    rows, ranks, chosen, first, part_pool, part_count = gangs
    evicted, run_rank = verdict
    dev_pool, dev_claim, _, n_devices = devices
    out_rows, out_ranks, out_options, out_first, out_taken, numbers, ev_rows, ev_ranks, ev_by = out
    user = np.full(n_devices, placed, np.int64)  # the gang that gets a device; ``placed``: none
    first_device = np.zeros(n_pools + 1, np.int64)  # devices of a pool are numbered side by side
    for d in range(n_devices):
        first_device[dev_pool[d] + 1] = d + 1
    at = 0
    for c in range(placed):
        out_rows[c], out_ranks[c], out_options[c], out_first[c], out_taken[c] = (
            rows[c],
            ranks[c],
            chosen[c],
            at,
            0,
        )
        for part in range(first[c], first[c + 1]):
            pool, k = part_pool[part], part_count[part]
            among = (first_device[pool], first_device[pool + 1])
            out_taken[c] += _pick(c, k, among, devices, mark, evicted, user, placed, numbers[at : at + k])
            at += k
    out_first[placed] = at
    by = np.full(len(running), placed, np.int64)
    for d in range(n_devices):
        if dev_claim[d] >= 0 and mark[dev_claim[d]] > 0:
            by[mark[dev_claim[d]] - 1] = min(by[mark[dev_claim[d]] - 1], user[d])
    n = 0
    for j in range(len(running)):
        if evicted[j]:
            ev_rows[n], ev_ranks[n], ev_by[n] = running[j], run_rank[j], rows[by[j] if by[j] < placed else 0]
            n += 1
    return n


@njit(cache=True)
def _pick(
    gang: int, k: int, among: Any, devices: Any, mark: Any, evicted: Any, user: Any, nobody: int, numbers: Any
) -> int:
    """``k`` devices of a pool: free ones first, then those being given back, then those taken; returns how many
    are taken. Fills ``numbers``, ascending."""
    _, dev_claim, dev_owner, _ = devices
    at, taken = 0, 0
    for tier in range(3):
        for d in range(among[0], among[1]):
            if at == k:
                break
            if user[d] != nobody:
                continue
            claim = dev_claim[d]
            if claim < 0:
                good = tier == (0 if dev_owner[d] < 0 else 1)
            else:
                good = tier == 2 and mark[claim] > 0 and evicted[mark[claim] - 1]
            if good:
                user[d] = gang
                numbers[at] = d
                at += 1
                taken += tier == 2
    numbers.sort()
    return taken
