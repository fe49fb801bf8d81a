"""What a tab shows: facts, tables, and what sticks out of the window."""

from __future__ import annotations

from page.browser import Tab

EVENTS_SHOWN = "document.querySelectorAll('#events > li').length"
FINAL = "document.getElementById('link').dataset.kind === 'over'"
LOST = "document.body.classList.contains('is-lost')"


def facts(tab: Tab, selector: str) -> dict[str, str]:
    """Terms and values of a ``dl``, notes included, as they are read."""
    found: dict[str, str] = tab.evaluate(
        f"Object.fromEntries([...document.querySelectorAll('{selector} .fact')].map(f => "
        "[f.querySelector('dt').innerText, f.querySelector('dd').innerText.replace(/\\s+/g, ' ')]))"
    )
    return found


def rows(tab: Tab, selector: str) -> list[list[str]]:
    """Cells of a table's body."""
    found: list[list[str]] = tab.evaluate(
        f"[...document.querySelector('{selector}').tBodies[0].rows]"
        ".map(row => [...row.cells].map(cell => cell.innerText.trim()))"
    )
    return found


def overflowing(tab: Tab) -> list[str]:
    """Elements that stick out of the window, but for what scrolls or is clipped on purpose."""
    found: list[str] = tab.evaluate(
        """[...document.querySelectorAll('body *')]
        .filter(e => !e.closest('pre, svg, .for-ears, thead') && e.getClientRects().length)
        .filter(e => e.getBoundingClientRect().right > innerWidth + 0.5
                  || e.getBoundingClientRect().left < -0.5)
        .map(e => `${e.tagName}#${e.id}.${e.className}: ${e.textContent.slice(0, 40)}`)"""
    )
    wide = tab.evaluate("document.documentElement.scrollWidth > innerWidth")
    return [*found, *(["the document scrolls sideways"] if wide else [])]
