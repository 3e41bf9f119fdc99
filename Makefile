# make serve   installs what serving needs, fetches the demo model, and serves it on 127.0.0.1:30000
# make chat    talks to a running server in the terminal
# make test    installs what development needs, and runs linter, type checker and tests
# make lint, make types, make pytest: the parts of it
#
# PYTHON=python3.12 picks the interpreter (3.11 or newer) of a new .venv.

PYTHON ?= python3
PORT ?= 30000
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
DEMO := .demo/SmolLM2-135M-Instruct.Q4_1.gguf
MEMBERS := core plugins/kv_pool_mha plugins/loader_gguf plugins_attention_torch
PROJECTS := $(addsuffix /pyproject.toml,$(MEMBERS))
EDITABLE := $(addprefix -e ./,$(MEMBERS))

.PHONY: serve chat test lint types pytest clean

serve: $(VENV)/serve.stamp $(DEMO)
	$(BIN)/serve --model $(DEMO) --served-model-name smollm2 --host 127.0.0.1 --port $(PORT)

chat: $(VENV)/serve.stamp
	@$(BIN)/python scripts/chat.py --url http://127.0.0.1:$(PORT)

test: lint types pytest

lint: $(VENV)/dev.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/dev.stamp
	$(BIN)/mypy

pytest: $(VENV)/dev.stamp $(DEMO)
	$(BIN)/pytest

clean:
	rm -rf $(VENV) .demo .mypy_cache .ruff_cache .pytest_cache .hypothesis

$(VENV)/venv.stamp:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "$(PYTHON) is older than Python 3.11; name a newer one: make PYTHON=python3.12 ..."; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@touch $@

# RELEASE=1: the members name each other plainly, since all of them are in this one command.
$(VENV)/serve.stamp: $(VENV)/venv.stamp constraints.txt $(PROJECTS)
	RELEASE=1 $(PIP) install -q -c constraints.txt $(EDITABLE)
	@touch $@

$(VENV)/dev.stamp: $(VENV)/serve.stamp requirements-dev.txt
	$(PIP) install -q -c constraints.txt -r requirements-dev.txt
	@touch $@

$(DEMO): $(VENV)/venv.stamp
	$(BIN)/python scripts/demo_model.py $@
