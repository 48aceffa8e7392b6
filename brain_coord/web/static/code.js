// One request as code to paste. The key never stands in it: it comes from the environment.

const shell = (text) => `'${text.replaceAll("'", `'\\''`)}'`;

function python(value) {
  if (value === true) return "True";
  if (value === false) return "False";
  if (value === null) return "None";
  if (Array.isArray(value)) return `[${value.map(python).join(", ")}]`;
  if (typeof value === "object") return `{${Object.entries(value).map(([name, each]) => `${JSON.stringify(name)}: ${python(each)}`).join(", ")}}`;
  return JSON.stringify(value);
}

function split(body) {
  const { mode, privacy, ...plain } = body;
  const ours = { ...(mode && { mode }), ...(privacy && { privacy }) };
  return [plain, Object.keys(ours).length ? ours : null];
}

const writers = {
  curl: (url, body) =>
    `curl -N ${shell(url.href)} \\\n  -H "Authorization: Bearer $BRAIN_API_KEY" \\\n  -H 'Content-Type: application/json' \\\n  -d ${shell(JSON.stringify(body, null, 2))}\n`,
  python: (url, body) => {
    const [plain, ours] = split(body);
    const lines = Object.entries(plain).map(([name, value]) => `    ${name}=${python(value)},`);
    if (ours) lines.push(`    extra_body=${python(ours)},`);
    return `import os\n\nfrom openai import OpenAI\n\nclient = OpenAI(base_url=${JSON.stringify(url.href.replace("/chat/completions", ""))}, api_key=os.environ["BRAIN_API_KEY"])\nstream = client.chat.completions.create(\n${lines.join("\n")}\n)\nfor chunk in stream:\n    for choice in chunk.choices:\n        print(choice.delta.content or "", end="", flush=True)\nprint()\n`;
  },
  node: (url, body) =>
    `import OpenAI from "openai";\n\nconst client = new OpenAI({ baseURL: ${JSON.stringify(url.href.replace("/chat/completions", ""))}, apiKey: process.env.BRAIN_API_KEY });\nconst stream = await client.chat.completions.create(${JSON.stringify(body, null, 2)});\nfor await (const chunk of stream) {\n  for (const choice of chunk.choices) process.stdout.write(choice.delta.content ?? "");\n}\nconsole.log();\n`,
};

/** The request as `curl`, `python` or `node` code. */
export function codeOf(kind, url, body) {
  return writers[kind](url, body);
}
