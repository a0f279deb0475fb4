"""What to do differently, or which version to leave, from misses by cause and by known bug."""

from collections.abc import Mapping, Sequence

from analyzer.advice.wording import REREAD, chains_of, cost, finding, grouped, misses_of, some
from analyzer.results import Finding, Rebuild
from analyzer.signatures import MEANING, version_order

_HABITS: Mapping[str, tuple[str, str]] = {
    "model_changed": ("Choose the model at the start of a task", "/model before the first prompt, or a new session"),
    "fast_mode_changed": ("Choose the speed at the start of a task", "/fast before the first prompt"),
    "effort_changed": ("Choose the effort at the start of a task", "/effort before the first prompt"),
    "resumed": ("Keep a long conversation in one process", "leave the terminal open instead of --resume; update first"),
    "version_changed": (
        "Upgrade between conversations, not within one",
        "DISABLE_AUTOUPDATER=1 while long sessions run, claude update between them",
    ),
    "directory_changed": (
        "One session per directory and branch",
        "start a session in the worktree, do not move into it",
    ),
    "deferred_tool_loaded": (
        "Load deferred tools early, or all at the start",
        "name the tools in the first prompt, or ENABLE_TOOL_SEARCH=false to load all at the start",
    ),
    "hook_context": ("A hook adds context that rewrites the conversation", "drop or shorten its additionalContext"),
    "skill_loaded": ("A skill changed the tools in an old version", "claude update: later versions keep the cache"),
    "interrupted": (
        "Interrupting a request throws its cache entry away",
        "queue the next prompt instead of pressing Esc",
    ),
    "rewind_or_branch": (
        "Rewinding, or two terminals on one session, writes a branch anew",
        "one terminal per session",
    ),
    "tools_changed": (
        "The tool list changed within a session",
        "keep MCP servers, permissions and plugins as they are while a session runs",
    ),
    "system_prompt_changed": (
        "The system prompt changed within a session",
        "keep plugins, output style and settings the same between the starts of one conversation",
    ),
}


def bug_findings(misses: Sequence[Rebuild], newest: str | None) -> list[Finding]:
    found = []
    for name, held in grouped((miss for miss in misses if miss.signature), lambda miss: str(miss.signature)).items():
        if name == "ttl_flip":
            continue
        versions = sorted({miss.version for miss in held if miss.version}, key=version_order)
        evidence = [MEANING[name], f"{misses_of(held)} in {chains_of(held)}, versions {some(versions)}"]
        leave = f"leave version {versions[-1]} (claude update)" if versions else "another version (claude update)"
        if newest and versions and version_order(newest) > version_order(versions[-1]):
            evidence.append(f"not seen in {newest}, the newest version here")
            leave = f"stay on a version after {versions[-1]}"
        if name == "warm_resume":
            leave += "; until then keep one process open instead of resuming"
        elif name == "version_flip_flop":
            leave = "use one version of Claude Code on every terminal and scheduled job that shares a session"
        elif name == "turn_rewrites":
            leave += "; without hooks that add context, where there are any"
        title = f"A known bug rewrites the cache: {name}"
        found.append(finding(f"bug_{name}", title, cost(held), leave, REREAD, evidence, held))
    return found


def habit_findings(misses: Sequence[Rebuild]) -> list[Finding]:
    found = []
    for server, held in grouped(
        (miss for miss in misses if miss.cause == "mcp_changed"), lambda miss: ", ".join(miss.servers)
    ).items():
        name = server or "an MCP server"
        plural = "," in server
        found.append(
            finding(
                "mcp_server",
                f"MCP {'servers' if plural else 'server'} {name} {'come and go' if plural else 'comes and goes'}"
                if server
                else "The tool list of an MCP server changes",
                cost(held),
                f"claude mcp remove {server or 'NAME'}, or wait with the first prompt until it is connected (/mcp)",
                REREAD,
                [f"{misses_of(held)} right after it connected or dropped, in {chains_of(held)}"],
                held,
            )
        )
    for cause, (title, setting) in _HABITS.items():
        held = [miss for miss in misses if miss.cause == cause]
        if held:
            evidence = [f"{misses_of(held)} with cause {cause} in {chains_of(held)}"]
            found.append(finding(cause, title, cost(held), setting, REREAD, evidence, held))
    return found
