// What OpenAI's client for Node.js makes of our answers: BASE_URL KEY MODEL, JSON on stdout.
import OpenAI from "openai";

const [baseURL, apiKey, model] = process.argv.slice(2);
const PIXEL = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
const tools = ["weather", "clock"].map((name) => ({ type: "function", function: { name, parameters: { type: "object" } } }));
const client = new OpenAI({ baseURL, apiKey, maxRetries: 0, timeout: 30000 });
const user = (content) => [{ role: "user", content }];
const told = (error) => [error.constructor.name, error.status ?? null, error.code == null ? null : String(error.code), error.error?.message ?? error.message];
const caught = async (work) => {
  try {
    await work();
    return "no error";
  } catch (error) {
    return error;
  }
};
const gather = async (stream) => {
  const found = [];
  for await (const each of await stream) found.push(each);
  return found;
};
const create = (request) => client.chat.completions.create({ model, messages: user("hello"), ...request });

const checks = {
  async models() {
    return (await gather(client.models.list())).map((each) => each.id);
  },
  async chat() {
    const answer = await create({ mode: "COMMUNITY" });
    const [choice] = answer.choices;
    return [choice.message.content, choice.finish_reason, answer.usage.total_tokens, answer.model, answer.brain.mode];
  },
  async chat_headers() {
    const { data, response } = await create({}).withResponse();
    return [
      response.headers.get("x-request-id") === data._request_id && data._request_id === data.brain.request_id,
      response.headers.get("x-brain-receipt") === data.brain.receipt,
    ];
  },
  async chat_stream() {
    const chunks = await gather(create({ stream: true, stream_options: { include_usage: true } }));
    const choices = chunks.flatMap((chunk) => chunk.choices);
    const last = chunks.at(-1);
    return [
      choices.map((choice) => choice.delta.content ?? "").join(""),
      choices.map((choice) => choice.finish_reason).filter(Boolean),
      last.usage.completion_tokens,
      "receipt" in last.brain,
    ];
  },
  async chat_stream_without_usage() {
    const chunks = await gather(create({ stream: true }));
    return [chunks.some((chunk) => chunk.usage), chunks.at(-1).choices[0].finish_reason, "brain" in chunks.at(-1)];
  },
  async tools() {
    const answer = await create({ messages: user("call"), tools, tool_choice: "auto", parallel_tool_calls: true });
    return answer.choices[0].message.tool_calls.map((call) => [call.function.name, JSON.parse(call.function.arguments)]);
  },
  async tools_stream() {
    const chat = client.chat.completions.stream ? client.chat : client.beta.chat; // where older versions keep it
    const answer = await chat.completions.stream({ model, messages: user("call"), tools }).finalChatCompletion();
    return answer.choices[0].message.tool_calls.map((call) => [call.function.name, JSON.parse(call.function.arguments)]);
  },
  async image() {
    const parts = [{ type: "text", text: "what?" }, { type: "image_url", image_url: { url: PIXEL } }];
    return (await create({ messages: user(parts) })).choices[0].message.content;
  },
  async completions() {
    return (await client.completions.create({ model, prompt: "hello" })).choices[0].text;
  },
  async completions_stream() {
    const chunks = await gather(client.completions.create({ model, prompt: "hello", stream: true }));
    return chunks.flatMap((chunk) => chunk.choices).map((choice) => choice.text).join("");
  },
  async embeddings() {
    return (await client.embeddings.create({ model, input: ["a", "b"] })).data.map((each) => [...each.embedding]);
  },
  async embeddings_as_floats() {
    return (await client.embeddings.create({ model, input: "a", encoding_format: "float" })).data[0].embedding;
  },
  async responses() {
    const answer = await client.responses.create({ model, input: "hello" });
    return [answer.output_text, answer.status, answer.usage.output_tokens];
  },
  async responses_stream() {
    const events = await gather(client.responses.create({ model, input: "hello", stream: true }));
    const deltas = events.filter((event) => event.type === "response.output_text.delta");
    const last = events.at(-1);
    return [deltas.map((event) => event.delta).join(""), last.type, last.response.usage.output_tokens];
  },
  async cancelled_stream() {
    const stream = await create({ messages: user("talk and hang"), stream: true });
    const words = [];
    for await (const chunk of stream) {
      words.push(chunk.choices[0].delta.content ?? "");
      if (words.length === 3) break;
    }
    return words.join("");
  },
  async impatient() {
    const request = { model, messages: user("hang") };
    const error = await caught(() => client.chat.completions.create(request, { timeout: 1000 }));
    return error.constructor.name.replace("APIConnectionTimeoutError", "APITimeoutError");
  },
  async errors() {
    const failing = async (request) => {
      const error = await caught(() => create(request));
      return [...told(error), Boolean(error.requestID ?? error.request_id)];
    };
    const wrong = new OpenAI({ baseURL, apiKey: "sk-wrong", maxRetries: 0 });
    return {
      "bad key": told(await caught(() => wrong.models.list())),
      "refused by the engine": await failing({ messages: user("refuse") }),
      "refused by the engine, streamed": await failing({ messages: user("refuse"), stream: true }),
      "no messages": await failing({ messages: [] }),
      "unknown model": await failing({ model: "brain/mocc" }),
      "no node": await failing({ model: "qwen/qwen3-32b" }),
    };
  },
  async error_in_a_stream() {
    const words = [];
    const error = await caught(async () => {
      for await (const chunk of await create({ messages: user("break"), stream: true }))
        words.push(chunk.choices[0].delta.content ?? "");
    });
    return [words.join(""), ...told(error)];
  },
  async error_in_a_stream_of_responses() {
    const words = [];
    const error = await caught(async () => {
      for await (const event of await client.responses.create({ model, input: "break", stream: true }))
        words.push(event.type === "response.output_text.delta" ? event.delta : "");
    });
    return [words.join(""), ...told(error)];
  },
};

const seen = {};
for (const [name, check] of Object.entries(checks)) seen[name] = await check();
console.log(JSON.stringify({ version: "node", seen }));
