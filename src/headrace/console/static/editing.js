// A configuration changed as a document: what would change, and what is lost by it, is shown first.
import { html, api, useState } from "/lib.js";
import { Dialog, Problem, Table, toast } from "/parts.js";

/** Change the configuration: what would change and be lost is shown first. */
export function Edit({ path, name, config, onClose, onDone }) {
  const [text, setText] = useState(() => JSON.stringify(config, null, 2));
  const [plan, setPlan] = useState(null);
  const [typed, setTyped] = useState("");
  const [error, setError] = useState(null);
  const send = async (body) => {
    setError(null);
    try {
      let wanted;
      try { wanted = JSON.parse(text); } catch (problem) { throw new Error(`this is not JSON: ${problem.message}`); }
      return await api(path, { method: "PUT", body: { config: wanted, ...body } });
    } catch (problem) {
      setError(problem);
      return null;
    }
  };
  const submit = async (event) => {
    event.preventDefault();
    if (plan === null) { setPlan(await send({ dry_run: true })); return; }
    if (await send({ confirm: typed })) { toast(`${name} changed`); onDone(); onClose(); }
  };
  const shown = (value) => value === null ? "default" : JSON.stringify(value);
  return html`<${Dialog} title=${`Change ${name}`} onClose=${onClose}><form onSubmit=${submit}>
    <p class="soft">The configuration as the JetStream API has it: times are nanoseconds.</p>
    <label class="field"><span>Configuration</span><textarea name="config" rows="16" value=${text} onInput=${(event) => { setText(event.target.value); setPlan(null); }}></textarea></label>
    ${plan && (plan.changes.length ? html`<${Table} name="changes" columns=${[{ id: "setting", title: "Setting" }, { id: "now", title: "Now", show: (row) => shown(row.now) }, { id: "then", title: "Then", show: (row) => shown(row.then) }]} rows=${plan.changes.map((row) => ({ ...row, key: row.setting }))} empty="" />
      ${plan.loss && html`<p class="note bad" role="alert">This is a change ${plan.loss}.</p>`}
      ${plan.removes && html`<label class="field"><span>Type the name to confirm: <b>${name}</b></span><input name="confirm" autocomplete="off" value=${typed} onInput=${(event) => setTyped(event.target.value)} /></label>`}` : html`<p class="note">Nothing would change.</p>`)}
    <${Problem} error=${error} />
    <div class="bar"><button class=${plan && plan.removes ? "danger" : "primary"} disabled=${plan !== null && (plan.changes.length === 0 || (plan.removes && typed !== name))}>${plan === null ? "Show what changes" : "Change"}</button>
      <button type="button" onClick=${onClose}>Cancel</button></div></form></${Dialog}>`;
}
