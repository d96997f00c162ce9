"""The compiled heart of placement: one pass over a ranking gives who keeps, who gets and who loses a gang.

``plan`` works in four steps, all in order of rank:

1. *choose* by count: each job, waiting or running, takes its devices out of a budget (devices free or held by ranked
   running jobs, by type). Waiting jobs that fit are chosen, running ones that do not are candidates for eviction.
2. *fit* each chosen waiting job on nodes: where free devices suffice, on those; else on devices of candidates; else,
   where locality forbids that, on devices of any running job ranked below it.
3. *settle*: running jobs, best first, keep their gangs as long as what step 2 took leaves them room. So a job loses
   its gang only if its devices are really used by others, and of those in the way the lowest-ranked lose.
4. *fill*: where a chosen job did not fit on nodes, waiting jobs passed over in step 1 may take what is left.

The books are kept by pool (equal devices of one node); device numbers are given out last.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from haibun.core.precedence import precedes

UNBOUNDED = 1 << 60
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
        taken = max(0, n - free[first[i]])
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
def _fit_avoiding(
    books: Any, free: Any, pools: Any, n_site: Any, want: Any, avoid: int, take: Any
) -> bool:
    """As ``_fit``, away from the node where the job failed last if that can be."""
    if avoid >= 0 and _fit(books, free, pools, n_site, want, avoid, take):
        return True
    return _fit(books, free, pools, n_site, want, -1, take)


@njit(cache=True)
def _book(books: Any, pool: int, node: int, k: int, cpu: int, memory: int, sign: int) -> None:
    dev, cpus, mem = books
    dev[pool] += sign * k
    cpus[node] += sign * k * cpu
    mem[node] += sign * k * memory


@njit(cache=True)
def _spend(books: Any, pool: int, node: int, k: int, cpu: int, memory: int) -> None:
    """Take ``k`` devices, as far as there are any: for the book of what is free outright."""
    dev, cpus, mem = books
    dev[pool] = max(0, dev[pool] - k)
    cpus[node] = max(0, cpus[node] - k * cpu)
    mem[node] = max(0, mem[node] - k * memory)


@njit(cache=True)
def _copy(books: Any) -> Any:
    return books[0].copy(), books[1].copy(), books[2].copy()


@njit(cache=True)
def _holdings(running: Any, fixed: Any, dev_claim: Any, dev_pool: Any, n_devices: int, mark: Any) -> Any:
    """Which pool each device of each running job is in, side by side: pools of job ``i`` are
    ``held[start[i]:start[i + 1]]``, a pool once for each device."""
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
def _choose(
    waiting: Any,
    running: Any,
    keys: Any,
    strict: bool,
    jobs: Any,
    demands: Any,
    options: Any,
    budget: Any,
    fixed: Any,
    skip: Any,
    chosen: Any,
    kept: Any,
    run_rank: Any,
) -> Any:
    """Step 1. Fills ``chosen`` (index into waiting, rank, option) and ``kept``; returns (chosen, first refused)."""
    j_demand, _, j_type, j_width = jobs
    d_first, d_last, _, _, d_possible = demands
    o_type, o_devices, _, _ = options
    i, j, rank, count, blocked, room = 0, 0, 0, 0, -1, 0
    open_to_waiting = True
    for t in range(len(budget)):
        room += budget[t]
    while j < len(running) or (open_to_waiting and i < len(waiting)):
        if room <= 0:
            break
        take_running = j < len(running) and not (
            open_to_waiting and i < len(waiting) and precedes(keys, waiting[i], running[j])
        )
        if take_running:
            row = running[j]
            run_rank[j] = rank
            if not fixed[j] and budget[j_type[row]] >= j_width[row]:
                budget[j_type[row]] -= j_width[row]
                room -= j_width[row]
                kept[j] = True
            j += 1
        else:
            row = waiting[i]
            demand = j_demand[row]
            if d_possible[demand] and not skip[i]:
                got = False
                for o in range(d_first[demand], d_last[demand]):
                    if budget[o_type[o]] >= o_devices[o]:
                        budget[o_type[o]] -= o_devices[o]
                        room -= o_devices[o]
                        chosen[count, 0], chosen[count, 1], chosen[count, 2] = i, rank, o
                        count += 1
                        got = True
                        break
                if not got:
                    if blocked < 0:
                        blocked = row
                    open_to_waiting = not strict
            elif skip[i]:
                if blocked < 0:
                    blocked = row
                open_to_waiting = not strict
            i += 1
        rank += 1
    if blocked < 0 and i < len(waiting):
        blocked = waiting[i]
    while j < len(running):
        run_rank[j] = rank
        rank += 1
        j += 1
    return count, blocked


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
    skip: Any,
    out: Any,
) -> Any:
    """See the module. ``mark`` (a 0 for each row) and ``skip`` (a False for each) are scratch, given back as they came.

    Returns (jobs placed, jobs evicted, row of the first waiting job refused or -1); ``out`` holds them: rows, ranks,
    options, first index into the list of devices, devices taken from others; evicted rows, ranks, and by whom.
    """
    j_demand, j_avoid, j_type, j_width = jobs
    d_first, d_last, d_cpu, d_memory, d_possible = demands
    o_type, o_devices, o_locality, o_nodes = options
    p_node, p_type, p_open, n_pools = pools
    n_site, n_cpu, n_mem, n_nodes = nodes
    dev_pool, dev_claim, dev_owner, n_devices = devices
    if len(waiting) == 0:
        return 0, 0, -1

    # Ranked running jobs; one with a device on a closed node is left where it is.
    fixed = np.zeros(len(running), np.bool_)
    for i in range(len(running)):
        mark[running[i]] = i + 1
    closed = False
    for pool in range(n_pools):
        if not p_open[pool]:
            closed = True
    if closed:
        for d in range(n_devices):
            if dev_claim[d] >= 0 and mark[dev_claim[d]] > 0 and not p_open[dev_pool[d]]:
                fixed[mark[dev_claim[d]] - 1] = True

    budget0 = np.zeros(n_types, np.int64)
    for pool in range(n_pools):
        if p_open[pool]:
            budget0[p_type[pool]] += p_free[pool]
    for i in range(len(running)):
        if not fixed[i]:
            budget0[j_type[running[i]]] += j_width[running[i]]
    room = 0
    for t in range(n_types):
        room += budget0[t]

    chosen = np.empty((min(len(waiting), room) + 1, 3), np.int64)
    kept = np.zeros(len(running), np.bool_)
    run_rank = np.zeros(len(running), np.int64)
    books = (p_free[:n_pools].copy(), n_cpu[:n_nodes].copy(), n_mem[:n_nodes].copy())
    for pool in range(n_pools):
        if not p_open[pool]:
            books[0][pool] = 0
    start = np.zeros(1, np.int64)
    held = np.zeros(0, np.int64)
    have_holdings = False
    n_placed, failures, blocked = 0, 0, -1
    fits = np.empty((0, 0), np.int64)
    free = _copy(books)
    spare = _copy(books)
    take = np.zeros(n_pools, np.int64)
    placed = np.zeros((0, 3), np.int64)

    for attempt in range(4):
        kept[:] = False
        count, blocked = _choose(
            waiting, running, keys, strict, jobs, demands, options, budget0.copy(), fixed, skip, chosen, kept, run_rank
        )
        n_placed, failures = 0, 0
        if count == 0:
            break
        placed = np.zeros((count, 3), np.int64)
        fits = np.zeros((count, n_pools), np.int64)
        free = _copy(books)  # free outright
        spare = _copy(books)  # free, or held by candidates for eviction
        evictable = 0
        for i in range(len(running)):
            if not kept[i] and not fixed[i]:
                evictable += 1
        if evictable and not have_holdings:
            start, held = _holdings(running, fixed, dev_claim, dev_pool, n_devices, mark)
            have_holdings = True
        if evictable:
            for i in range(len(running)):
                if not kept[i] and not fixed[i]:
                    demand = j_demand[running[i]]
                    for h in range(start[i], start[i + 1]):
                        _book(spare, held[h], p_node[held[h]], 1, d_cpu[demand], d_memory[demand], 1)

        for c in range(count):
            row, rank, option = waiting[chosen[c, 0]], chosen[c, 1], chosen[c, 2]
            demand = j_demand[row]
            ok = False
            for o in range(d_first[demand], d_last[demand]):
                if o < option:
                    continue
                want = (
                    o_devices[o],
                    o_type[o],
                    o_locality[o],
                    o_nodes[o],
                    d_cpu[demand],
                    d_memory[demand],
                )
                ok = _fit_avoiding(free, free[0], pools, n_site, want, j_avoid[row], take)
                if not ok and evictable:
                    ok = _fit_avoiding(spare, free[0], pools, n_site, want, j_avoid[row], take)
                if not ok and len(running) > 0:
                    if not have_holdings:
                        start, held = _holdings(running, fixed, dev_claim, dev_pool, n_devices, mark)
                        have_holdings = True
                    all_below = _copy(spare)
                    for i in range(len(running)):
                        if kept[i] and not fixed[i] and run_rank[i] > rank:
                            for h in range(start[i], start[i + 1]):
                                other = j_demand[running[i]]
                                _book(all_below, held[h], p_node[held[h]], 1, d_cpu[other], d_memory[other], 1)
                    ok = _fit_avoiding(all_below, free[0], pools, n_site, want, j_avoid[row], take)
                if ok:
                    option = o
                    break
            if not ok:
                failures += 1
                skip[chosen[c, 0]] = True
                if strict:
                    blocked = row
                    break
                continue
            for pool in range(n_pools):
                k = take[pool]
                if k:
                    _spend(free, pool, p_node[pool], k, d_cpu[demand], d_memory[demand])
                    _book(spare, pool, p_node[pool], k, d_cpu[demand], d_memory[demand], -1)
                    fits[n_placed, pool] = k
            placed[n_placed, 0], placed[n_placed, 1], placed[n_placed, 2] = row, rank, option
            n_placed += 1
        if failures == 0 or strict:
            break

    # Step 3: settle. ``spare`` plus what kept jobs hold is what running jobs may keep.
    n_evicted = 0
    evicted = np.zeros(len(running), np.bool_)
    if have_holdings and n_placed:
        for i in range(len(running)):
            if kept[i] and not fixed[i]:
                demand = j_demand[running[i]]
                for h in range(start[i], start[i + 1]):
                    _book(spare, held[h], p_node[held[h]], 1, d_cpu[demand], d_memory[demand], 1)
        for i in range(len(running)):
            if fixed[i]:
                continue
            demand = j_demand[running[i]]
            cpu, memory = d_cpu[demand], d_memory[demand]
            for h in range(start[i], start[i + 1]):
                _book(spare, held[h], p_node[held[h]], 1, cpu, memory, -1)
            for h in range(start[i], start[i + 1]):
                pool = held[h]
                node = p_node[pool]
                if spare[0][pool] < 0 or (cpu > 0 and spare[1][node] < 0) or (memory > 0 and spare[2][node] < 0):
                    evicted[i] = True
            if evicted[i]:
                n_evicted += 1
                for h in range(start[i], start[i + 1]):
                    _book(spare, held[h], p_node[held[h]], 1, cpu, memory, 1)
    elif not have_holdings or n_placed == 0:
        spare = _copy(free) if n_placed else _copy(books)

    # Step 4: fill what is left, where counting and fitting disagreed.
    if failures and not strict:
        extra = np.zeros((n_placed + len(waiting), 3), np.int64)
        more = np.zeros((min(n_placed + len(waiting), n_devices + 1), n_pools), np.int64)
        extra[:n_placed] = placed[:n_placed]
        more[:n_placed] = fits[:n_placed]
        is_placed = np.zeros(len(waiting), np.bool_)
        for c in range(n_placed):
            mark[placed[c, 0]] = -1
        for i in range(len(waiting)):
            is_placed[i] = mark[waiting[i]] == -1
        for c in range(n_placed):
            mark[placed[c, 0]] = 0
        left = 0
        for pool in range(n_pools):
            left += max(0, spare[0][pool])
        for i in range(len(waiting)):
            if left <= 0:
                break
            row = waiting[i]
            demand = j_demand[row]
            if is_placed[i] or not d_possible[demand]:
                continue
            for o in range(d_first[demand], d_last[demand]):
                if o_devices[o] > left:
                    continue
                want = (o_devices[o], o_type[o], o_locality[o], o_nodes[o], d_cpu[demand], d_memory[demand])
                if _fit_avoiding(spare, spare[0], pools, n_site, want, j_avoid[row], take):
                    for pool in range(n_pools):
                        if take[pool]:
                            _book(spare, pool, p_node[pool], take[pool], d_cpu[demand], d_memory[demand], -1)
                            more[n_placed, pool] = take[pool]
                            left -= take[pool]
                    extra[n_placed, 0], extra[n_placed, 1], extra[n_placed, 2] = row, i, o
                    n_placed += 1
                    break
        placed, fits = extra, more

    _give_out(placed, fits, n_placed, running, evicted, run_rank, devices, n_pools, mark, out)
    for i in range(len(running)):
        mark[running[i]] = 0
    skip[: len(waiting)] = False
    return n_placed, n_evicted, blocked


@njit(cache=True)
def _give_out(
    placed: Any,
    fits: Any,
    n_placed: int,
    running: Any,
    evicted: Any,
    run_rank: Any,
    devices: Any,
    n_pools: int,
    mark: Any,
    out: Any,
) -> None:
    """Device numbers for what was placed: free ones first, then those still being given back, then those taken."""
    dev_pool, dev_claim, dev_owner, n_devices = devices
    rows, ranks, opts, firsts, takens, numbers, ev_rows, ev_ranks, ev_by = out
    user = np.full(n_devices, -1, np.int64)
    first_of_pool = np.full(n_pools, n_devices, np.int64)
    count_of_pool = np.zeros(n_pools, np.int64)
    for d in range(n_devices):
        pool = dev_pool[d]
        first_of_pool[pool] = min(first_of_pool[pool], d)
        count_of_pool[pool] += 1
    at = 0
    for c in range(n_placed):
        rows[c], ranks[c], opts[c], firsts[c], takens[c] = placed[c, 0], placed[c, 1], placed[c, 2], at, 0
        for pool in range(n_pools):
            k = fits[c, pool]
            begin = at
            for tier in range(3):
                if k == 0:
                    break
                for d in range(first_of_pool[pool], first_of_pool[pool] + count_of_pool[pool]):
                    if k == 0:
                        break
                    if user[d] >= 0:
                        continue
                    claim = dev_claim[d]
                    if claim < 0:
                        good = tier == 0 if dev_owner[d] < 0 else tier == 1
                    else:
                        good = tier == 2 and mark[claim] > 0 and evicted[mark[claim] - 1]
                    if good:
                        user[d] = placed[c, 0]
                        numbers[at] = d
                        at += 1
                        k -= 1
                        if tier == 2:
                            takens[c] += 1
            numbers[begin:at].sort()
    firsts[n_placed] = at
    n_evicted = 0
    for i in range(len(running)):
        if evicted[i]:
            ev_rows[n_evicted], ev_ranks[n_evicted], ev_by[n_evicted] = running[i], run_rank[i], placed[0, 0]
            mark[running[i]] = i + 1
            n_evicted += 1
    for i in range(n_evicted):
        for d in range(n_devices):
            if dev_claim[d] == ev_rows[i] and user[d] >= 0:
                ev_by[i] = user[d]
                break
