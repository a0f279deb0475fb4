"""Experiments on the prefix cache: subagents beside their parent, prompts that break, and capacity against lifetime."""
