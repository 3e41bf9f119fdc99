"""`python -m core` is `serve`."""

from core.cli import main

raise SystemExit(main())
